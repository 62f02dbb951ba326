package parity

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// restartScripts make graceful restarts: a listener passes its socket on and is closed, and
// another listener serves the same socket. No client may notice.
var restartScripts = []script{
	{name: "restart on a listener's file", run: func(r *run) {
		restart(r, func(address string) (net.Conn, error) { return r.Dialer(0).Dial("tcp", address) }, func() net.Listener {
			ln, err := r.Listen()
			check(err)
			return ln
		})
	}},
	{name: "restart on a listener's file, plain clients", stacks: local, run: func(r *run) {
		restart(r, dialPlain, func() net.Listener {
			ln, err := r.Listen()
			check(err)
			return ln
		})
	}},
	{name: "restart on an inherited file, plain clients", stacks: local, run: func(r *run) {
		restart(r, dialPlain, func() net.Listener { return inherited(r) })
	}},
}

func dialPlain(address string) (net.Conn, error) { return net.Dial("tcp", address) }

// inherited returns a listener on a socket that was created by package net.
func inherited(r *run) net.Listener {
	below, err := net.Listen("tcp", ownAddress)
	check(err)
	return r.handOver(below)
}

// handOver returns a listener of the stack on a duplicate of ln's socket, and closes ln.
func (r *run) handOver(ln net.Listener) net.Listener {
	f, err := duplicate(ln)
	check(err)
	check(ln.Close())
	below, err := net.FileListener(f)
	check(err)
	check(f.Close())
	next, err := r.NewListener(below)
	check(err)
	return next
}

// restartKinds are the kinds of clients, with the server's and the client's side.
var restartKinds = []struct {
	name   string
	server func(net.Conn) error
	client func(restart <-chan struct{}, c net.Conn) error
}{
	{"a client that sends at once", echoOnce, func(_ <-chan struct{}, c net.Conn) error { return ask(c) }},
	{"a client that sends after the restart", echoOnce, func(restart <-chan struct{}, c net.Conn) error {
		<-restart
		return ask(c)
	}},
	{"a client that waits for a greeting", func(c net.Conn) error {
		if _, err := io.WriteString(c, "welcome"); err != nil {
			return err
		}
		return echoOnce(c)
	}, func(_ <-chan struct{}, c net.Conn) error {
		if err := expect(c, "welcome"); err != nil {
			return err
		}
		return ask(c)
	}},
}

const request = "request"

func ask(c net.Conn) error {
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	return expect(c, request)
}

func expect(c net.Conn, text string) error {
	b := make([]byte, len(text))
	if n, err := io.ReadFull(c, b); err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", n, len(b), err)
	}
	if string(b) != text {
		return fmt.Errorf("got %q", b)
	}
	return nil
}

func echoOnce(c net.Conn) error {
	b := make([]byte, len(request))
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	_, err := c.Write(b)
	return err
}

// restart restarts a listener 20 times for each kind of client, or 8 times in short tests.
func restart(r *run, dial func(string) (net.Conn, error), listen func() net.Listener) {
	rounds := 20
	if r.short {
		rounds = 8
	}
	results := make([]string, len(restartKinds))
	var kinds sync.WaitGroup
	for i, kind := range restartKinds {
		kinds.Go(func() {
			s := &restarting{run: r, serve: kind.server, next: make(chan struct{})}
			served, lost := s.clients(listen(), rounds, func(address string) error {
				next := s.restart()
				c, err := dial(address)
				if err != nil {
					return fmt.Errorf("dial: %w", err)
				}
				defer c.Close()
				check(c.SetDeadline(time.Now().Add(patience)))
				return kind.client(next, c)
			})
			r.log("%s: %d served, %d lost", kind.name, served, len(lost))
			results[i] = "no connection was lost"
			if len(lost) > 0 {
				r.log("%s: the first loss: %v", kind.name, lost[0])
				results[i] = "connections were lost"
			}
		})
	}
	kinds.Wait()
	for i, kind := range restartKinds {
		r.note(kind.name, results[i])
	}
}

// restarting is a server that passes its socket on repeatedly.
type restarting struct {
	*run
	serve    func(net.Conn) error
	accepted atomic.Int64

	mu   sync.Mutex
	next chan struct{} // closed by the next restart
}

// restart returns a channel that the next restart closes.
func (s *restarting) restart() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// restarted begins to wait for another restart, if there is one.
func (s *restarting) restarted(last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.next)
	if !last {
		s.next = make(chan struct{})
	}
}

// clients runs four clients in loops during the given number of restarts. It returns how many
// connections were served, and the errors of the others.
func (s *restarting) clients(ln net.Listener, rounds int, client func(address string) error) (served int, lost []error) {
	address := ln.Addr().String()
	s.accepting(ln)
	var mu sync.Mutex
	var over atomic.Bool
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for !over.Load() {
				err := client(address)
				mu.Lock()
				if err == nil {
					served++
				} else {
					lost = append(lost, err)
				}
				mu.Unlock()
			}
		})
	}
	var was int64
	for i := range rounds {
		eventually(func() bool { return s.accepted.Load() >= was+4 })
		ln = s.handOver(ln)
		s.accepting(ln)
		was = s.accepted.Load()
		over.Store(i == rounds-1)
		s.restarted(i == rounds-1)
	}
	running.Wait()
	return served, lost
}

// accepting serves the connections of ln until ln is closed.
func (s *restarting) accepting(ln net.Listener) {
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			go func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(patience))
				if s.serve(c) == nil {
					io.Copy(io.Discard, c) // the client closes first
				}
			}()
		}
	}()
}
