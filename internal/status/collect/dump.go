package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
	type answer struct {
		c   *net.UnixConn
		err error
	}
	answers := make(chan answer) // of the sockets that are named after the process
	found := func(d *directory) error {
		names, err := d.list()
		for _, name := range names {
			if number, _, _ := strings.Cut(name, "-"); number != strconv.Itoa(pid) {
				continue
			}
			c, err := dial(ctx, socket{d, name}, pid)
			select {
			case answers <- answer{c, err}:
			case <-ctx.Done():
				if err == nil {
					c.Close()
				}
			}
		}
		return err
	}
	var all sync.WaitGroup
	for _, path := range dirs {
		all.Go(func() { enter(ctx, path, found) })
	}
	looked := make(chan struct{})
	go func() {
		all.Wait()
		close(looked)
	}()
	last := errors.New("it does not run, or does not serve its status (SDP_STATUS=1)")
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

// dial connects to the process, if that is what serves the socket.
func dial(ctx context.Context, s socket, pid int) (*net.UnixConn, error) {
	c, is, err := s.dial(ctx, dumpPatience)
	if err != nil {
		return nil, err
	}
	if is != 0 && is != pid {
		c.Close()
		return nil, fmt.Errorf("%s is served by the process %d", s.path(), is)
	}
	return c, nil
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
			return errors.New("the program gave no answer")
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
