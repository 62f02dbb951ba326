package status

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// commandTime is how long a client may take to say what it wants, and writeTime how long
	// it may take to read its program's status.
	commandTime = 100 * time.Millisecond
	writeTime   = time.Second
	// dumpTime is how long a client of a dump may read nothing while there is something to
	// read.
	dumpTime = 10 * time.Second
	// maxClients limits how many clients are served at a time. Further ones are closed. One
	// that gets a dump does not count.
	maxClients = 4
)

// Handlers serve clients.
type Handlers struct {
	// Status writes the program's status.
	Status func(io.Writer) error
	// Dump serves the command "dump" with these options, until the dump ends or gone is closed
	// because the client has left.
	Dump func(options string, w io.Writer, gone <-chan struct{})
}

// A Server serves the state of a program on a socket, until Close.
type Server struct {
	ln       *net.UnixListener
	path     string
	handlers Handlers
	closed   context.Context
	cut      context.CancelFunc
	all      sync.WaitGroup
}

// Serve makes a socket in the directory, and the directory if it does not exist. It serves only
// clients of this process's user and of root.
func Serve(dir string, handlers Handlers) (*Server, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if err := Private(dir, os.Geteuid()); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, fmt.Sprintf("%d-%s", os.Getpid(), rand.Text()[:8]))
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		return nil, err
	}
	s := &Server{ln: ln, path: path, handlers: handlers}
	s.closed, s.cut = context.WithCancel(context.Background())
	s.all.Go(s.accept)
	return s, nil
}

// Path returns the path of the socket.
func (s *Server) Path() string { return s.path }

// Close removes the socket, ends a dump, and waits until no client is being served.
func (s *Server) Close() error {
	err := s.ln.Close() // which removes the socket's file
	s.cut()
	s.all.Wait()
	return err
}

func (s *Server) accept() {
	clients := make(chan struct{}, maxClients)
	for {
		c, err := s.ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // the process has no descriptor left
			time.Sleep(100 * time.Millisecond)
			continue
		}
		select {
		case clients <- struct{}{}:
			s.all.Go(func() {
				defer c.Close()
				leave := sync.OnceFunc(func() { <-clients })
				defer leave()
				s.serve(c, leave)
			})
		default:
			c.Close()
		}
	}
}

// serve serves a client. It calls leave when the client no longer counts.
func (s *Server) serve(c *net.UnixConn, leave func()) {
	if uid, _, err := Peer(c); err != nil || uid != 0 && uid != os.Geteuid() {
		return
	}
	c.SetDeadline(time.Now().Add(commandTime))
	command, options, _ := strings.Cut(readCommand(c), " ")
	c.SetDeadline(time.Now().Add(writeTime))
	switch command {
	case "", CommandStatus:
		s.handlers.Status(c)
	case CommandDump:
		leave()
		s.dump(c, options)
	default:
		fmt.Fprintf(c, "no such command: %q\n", command)
	}
}

func (s *Server) dump(c *net.UnixConn, options string) {
	c.SetReadDeadline(time.Time{})
	gone, leave := context.WithCancel(s.closed)
	defer leave()
	end := context.AfterFunc(s.closed, func() { c.SetDeadline(time.Now()) })
	defer end()
	s.all.Go(func() { // serve closes c, which ends this
		defer leave()
		io.Copy(io.Discard, c) // a client that sends something is not gone
	})
	s.handlers.Dump(options, patient{c, s.closed}, gone.Done())
}

// patient gives each Write time of its own, until closed ends.
type patient struct {
	c      *net.UnixConn
	closed context.Context
}

func (p patient) Write(b []byte) (int, error) {
	p.c.SetWriteDeadline(time.Now().Add(dumpTime))
	if p.closed.Err() != nil {
		p.c.SetWriteDeadline(time.Now())
	}
	return p.c.Write(b)
}

// readCommand reads a client's line. A client that sends none, or ends what it sends, gets the
// status.
func readCommand(r io.Reader) string {
	var b [maxCommand]byte
	n := 0
	for n < len(b) {
		k, err := r.Read(b[n:])
		n += k
		if line, _, ok := bytes.Cut(b[:n], []byte("\n")); ok {
			return string(line)
		}
		if err != nil {
			return ""
		}
	}
	return "a command that is too long"
}
