package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gosdp/gosdp/internal/status"
)

// dumpPatience is how long Dump waits for the program to begin.
const dumpPatience = 5 * time.Second

// maxAnswer is the length of the longest line with which a program answers.
const maxAnswer = 1024

// Dump asks the process, whose socket is in one of the directories, for a dump with these
// options. What the connection returns is a file of pcapng. The dump ends when the caller ends
// what it sends (CloseWrite); the file is complete at io.EOF.
func Dump(dirs []string, pid int, options string) (*net.UnixConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dumpPatience)
	defer cancel()
	answers := make(chan found) // in directories with sockets that are named after the process
	look := func(d *directory) error {
		names, err := d.list()
		names = slices.DeleteFunc(names, func(name string) bool {
			number, _, _ := strings.Cut(name, "-")
			return number != strconv.Itoa(pid)
		})
		if len(names) == 0 {
			return err
		}
		f := findIn(ctx, d, names, pid)
		select {
		case answers <- f:
		case <-ctx.Done():
			f.close()
		}
		return err
	}
	var all sync.WaitGroup
	for _, path := range dirs {
		all.Go(func() { enter(ctx, path, look) })
	}
	looked := make(chan struct{})
	go func() {
		all.Wait()
		close(looked)
	}()
	last := errors.New("not running, or not serving its status (SDP_STATUS=1)")
	for {
		select {
		case a := <-answers:
			if a.err != nil {
				last = a.err
				continue
			}
			if err := request(a.c, options); err != nil {
				a.c.Close()
				return nil, err
			}
			a.c.SetDeadline(time.Time{})
			return a.c, nil
		case <-looked:
			return nil, last
		case <-ctx.Done():
			return nil, last
		}
	}
}

// found is a connection to the process, or why there is none.
type found struct {
	c    *net.UnixConn
	path string
	sure bool // the kernel says which process serves the socket: it is in this pid namespace
	err  error
}

func (f found) close() {
	if f.c != nil {
		f.c.Close()
	}
}

// findIn connects to the process, if it serves one of the sockets. A process in another pid namespace
// is known only by the number in the socket's name, which two processes may have.
func findIn(ctx context.Context, d *directory, names []string, pid int) (f found) {
	for _, name := range names {
		next := dial(ctx, socket{d, name}, pid)
		if f.c == nil {
			f = next
			continue
		}
		next.close()
		if next.c != nil && !(f.sure && next.sure) {
			f.close()
			return found{err: fmt.Errorf("%s and %s may be of two processes, in different pid namespaces: set SDP_STATUS to a directory for each", f.path, next.path)}
		}
	}
	return f
}

// dial connects to the process, if that is what serves the socket.
func dial(ctx context.Context, s socket, pid int) found {
	c, is, err := s.dial(ctx, dumpPatience)
	if err == nil && is != 0 && is != pid {
		c.Close()
		c, err = nil, fmt.Errorf("%s is served by process %d", s.path(), is)
	}
	return found{c, s.path(), is == pid, err}
}

// request asks for a dump and reads the program's answer.
func request(c io.ReadWriter, options string) error {
	if _, err := io.WriteString(c, status.CommandDump+" "+options+"\n"); err != nil {
		return err
	}
	// Byte by byte, because the file follows.
	var line []byte
	var b [1]byte
	for len(line) < maxAnswer {
		if _, err := io.ReadFull(c, b[:]); err == io.EOF {
			return errors.New("no answer from program")
		} else if err != nil {
			return slow(err, dumpPatience)
		}
		if b[0] == '\n' {
			break
		}
		line = append(line, b[0])
	}
	if string(line) != "ok" {
		return errors.New(short(string(line), maxText))
	}
	return nil
}
