package status

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// writeTime is how long a client may take to read.
	writeTime = time.Second
	// maxClients limits how many clients are served at a time. Further ones are closed.
	maxClients = 4
)

// A Server serves the state of a program on a socket, until Close.
type Server struct {
	ln   *net.UnixListener
	path string
	all  sync.WaitGroup
}

// Serve makes a socket in the directory, and the directory if it does not exist. For each client it
// calls write. It serves only clients of this process's user and of root.
func Serve(dir string, write func(io.Writer) error) (*Server, error) {
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
	s := &Server{ln: ln, path: path}
	s.all.Go(func() { s.serve(write) })
	return s, nil
}

// Path returns the path of the socket.
func (s *Server) Path() string { return s.path }

// Close removes the socket and waits until no client is being served.
func (s *Server) Close() error {
	err := s.ln.Close() // which removes the socket's file
	s.all.Wait()
	return err
}

func (s *Server) serve(write func(io.Writer) error) {
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
				defer func() { <-clients }()
				defer c.Close()
				if uid, _, err := Peer(c); err != nil || uid != 0 && uid != os.Geteuid() {
					return
				}
				c.SetDeadline(time.Now().Add(writeTime))
				write(c)
			})
		default:
			c.Close()
		}
	}
}
