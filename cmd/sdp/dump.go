package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/dump"
	"github.com/gosdp/gosdp/internal/status"
	"github.com/gosdp/gosdp/internal/status/collect"
	"github.com/gosdp/gosdp/internal/term"
)

func dumpCommand() *command {
	c := &command{
		name:  "dump",
		usage: "[flags] PID",
		short: "write what a program's SDP connections carry, for Wireshark",
		long:  dumpHelp,
	}
	return withFlags(c, func(f *dumpFlags, rest []string) error {
		if len(rest) != 1 {
			return misuse(c.name, "want a process ID, as sdp stat shows it")
		}
		pid, err := strconv.Atoi(rest[0])
		if err != nil || pid <= 0 {
			return misuse(c.name, "invalid process ID %q", rest[0])
		}
		options, err := f.options()
		if err != nil {
			return misuse(c.name, "%v", err)
		}
		return f.run(pid, options)
	})
}

const dumpHelp = `
Dump makes a program write what its SDP connections send and receive as a pcapng file. SDP has
no packets that tcpdump could see, so the file has headers of IP and TCP that are made up, with
the real addresses and ports. Wireshark and tshark dissect HTTP, gRPC or SQL in it as usual:

	sdp dump -conn :5432 1234
	sdp dump -w - 1234 | tshark -r - -d tcp.port==8080,http

The program must serve its status (SDP_STATUS=1), belong to this user, and not have SDP_DUMP=off
in its environment. Root may dump any user's program. The file holds passwords and whatever else
the program sends in the clear. Only this user can read it.

A program that not serving its status dumps its own connections if SDP_DUMP is in its
environment, from its first connection on:

	SDP_DUMP=/tmp/dump-%p.pcapng,size=10M,conn=:5432 ./program

The path comes first; %p stands for the number of the process. The options are size, count, for
and conn, as the flags. A file that exists is never overwritten.

The program waits at most 0.1 s for the file. If packets are left out because the disk, or what
reads the output, is too slow, the file says where and how many.

Ctrl-C ends the dump.`

type dumpFlags struct {
	source
	file  string
	conn  string
	size  string
	count int64
	time  time.Duration
}

func (f *dumpFlags) define(fs *flag.FlagSet) {
	f.source.define(fs)
	fs.StringVar(&f.file, "w", "", "write this `file`, with the number of the process for %p; -: the standard output (default sdp-%p.pcapng)")
	fs.StringVar(&f.conn, "conn", "", "only connections with this `text` in their addresses or device, or #ID of sdp stat -json")
	fs.StringVar(&f.size, "size", "64M", "end at this `size` of the file, in bytes or with K, M or G")
	fs.Int64Var(&f.count, "c", 0, "end after this `number` of packets; 0: any number")
	fs.DurationVar(&f.time, "for", 0, "end after this `time`; 0: no limit")
}

// options checks the flags as the program will.
func (f *dumpFlags) options() (dump.Options, error) {
	if strings.ContainsAny(f.conn, ",\n") {
		return dump.Options{}, fmt.Errorf("-conn %q: must not contain a comma", f.conn)
	}
	o, err := dump.ParseOptions("size=" + f.size)
	switch {
	case err != nil:
		return o, err
	case f.count < 0:
		return o, fmt.Errorf("-c %d: must not be negative", f.count)
	case f.time < 0:
		return o, fmt.Errorf("-for %v: must not be negative", f.time)
	}
	o.Conn, o.Count, o.For = f.conn, f.count, f.time
	return o, nil
}

func (f *dumpFlags) run(pid int, o dump.Options) error {
	if err := f.usable(); err != nil {
		return err
	}
	if f.file == "" {
		f.file = "sdp-%p.pcapng"
	}
	f.file = dump.Path(f.file, pid)
	if f.file == "-" && term.IsTerminal(os.Stdout) {
		return misuse("dump", "-w - writes to a terminal: redirect it to a file or a program")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dirs, more := f.dirs()
	printFailures(os.Stderr, more)
	c, err := collect.Dump(dirs, pid, o.String())
	if err != nil {
		return fmt.Errorf("process %d: %s", pid, term.Clean(err.Error()))
	}
	defer c.Close()
	out := os.Stdout
	if f.file != "-" {
		if out, err = dump.Create(f.file); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "sdp: writing %s; Ctrl-C ends it\n", f.file)
	}
	n, comment, err := copyDump(ctx, out, c, o.Size)
	cut := err == nil && comment == ""
	if cut {
		err = errCut
	}
	if f.file != "-" {
		if err != nil && err != errStuck {
			dump.Trim(out, err)
		}
		err = errors.Join(err, out.Close())
	}
	switch {
	case cut && ended(pid):
		return fmt.Errorf("dump truncated after %s: program exited", term.Bytes(float64(n)))
	case cut:
		return fmt.Errorf("dump truncated after %s: %s", term.Bytes(float64(n)), term.Clean(err.Error()))
	case err != nil:
		return fmt.Errorf("dump truncated after %s: %s", term.Bytes(float64(n)), term.Clean(err.Error()))
	}
	fmt.Fprintf(os.Stderr, "sdp: %s. %s\n", term.Bytes(float64(n)), term.Clean(comment))
	return nil
}

// errCut is why a dump has no end. A program closes the connection if the tool reads nothing for
// some time, for example because the disk is slow or what reads the output is stopped.
var errCut = errors.New("unexpected end of the program's data")

// ended reports whether the process has ended. A process that is ending closes its connections
// first, so this waits for a moment.
func ended(pid int) bool {
	for range 10 {
		if !status.Alive(pid) {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

const (
	// endTime is how long an interrupted dump waits for the end of the file.
	endTime = 2 * time.Second
	// stuckTime is how long it waits, all together, for its output to take the file.
	stuckTime = endTime + time.Second
)

// errStuck is why an interrupted dump has no end if the output takes nothing, because what reads it
// is stopped, for example. A Write to a pipe has no deadline, so the command ends without it.
var errStuck = errors.New("output blocked: write timed out")

// copyDump copies a dump until it ends, or until ctx does. A program that sends more than it was
// asked for is not believed.
func copyDump(ctx context.Context, to io.Writer, c *net.UnixConn, size int64) (n int64, comment string, err error) {
	stuck := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.CloseWrite()
		c.SetReadDeadline(time.Now().Add(endTime))
		time.AfterFunc(stuckTime, func() { close(stuck) })
	})
	defer stop()
	last := &tail{w: to}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(last, io.LimitReader(c, size+1))
		copied <- err
	}()
	select {
	case err = <-copied:
	case <-stuck:
		return last.written.Load(), "", errStuck
	}
	n = last.written.Load()
	switch {
	case n > size:
		return n, "", fmt.Errorf("dump from program exceeds %d bytes", size)
	case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
		err = nil
	}
	return n, dump.EndComment(last.b), err
}

// tail passes bytes on, counts them and keeps the last ones.
type tail struct {
	w       io.Writer
	written atomic.Int64
	b       []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const keep = 2048
	t.b = append(t.b, b[max(0, len(b)-keep):]...)
	t.b = t.b[max(0, len(t.b)-keep):]
	n, err := t.w.Write(b)
	t.written.Add(int64(n))
	return n, err
}
