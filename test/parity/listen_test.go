package parity

import (
	"errors"
	"net"
	"sync/atomic"
)

// listenScripts have listeners that wrap other listeners.
var listenScripts = []script{
	{name: "the inner listener fails at first", stacks: local, run: func(r *run) {
		ln, failing := r.failing(1)
		close(failing.now)
		r.note("first Accept", acceptError(ln))
		r.note("echo", r.echo(ln))
		r.note("another echo", r.echo(ln))
	}},
	{name: "the inner listener fails between two clients", stacks: local, run: func(r *run) {
		ln, failing := r.failing(2)
		r.note("first echo", r.echo(ln))
		close(failing.now)
		r.note("second Accept", acceptError(ln))
		r.note("another echo", r.echo(ln))
	}},
	{name: "close a listener with an accept in progress", run: func(r *run) {
		ln, err := r.Listen()
		check(err)
		accepted := make(chan string, 1)
		go func() { accepted <- acceptError(ln) }()
		r.note("Close", timed(ln.Close))
		r.note("Accept", <-accepted)
		r.note("a further Accept", acceptError(ln))
		r.note("second Close", timed(ln.Close))
		_, err = r.Dial(ln.Addr().String())
		r.note("Dial", describe(err))
	}},
}

// acceptError describes the error of Accept.
func acceptError(ln net.Listener) string {
	return timed(func() error {
		_, err := ln.Accept()
		if errors.Is(err, errFilter) { // possibly wrapped
			return errFilter
		}
		return err
	})
}

var errFilter = errors.New("a filter rejects this client")

// echo connects a client to ln and exchanges data both ways.
func (r *run) echo(ln net.Listener) string {
	return timed(func() error {
		c, s := r.connect(ln)
		defer c.Close()
		defer s.Close()
		if _, err := c.Write(bytesOf(100)); err != nil {
			return err
		}
		if _, err := readTo(s, 0, 100); err != nil {
			return err
		}
		if _, err := s.Write(bytesOf(100)); err != nil {
			return err
		}
		_, err := readTo(c, 0, 100)
		return err
	})
}

// failingListener fails in one Accept, when now is closed. Its error does not say whether the
// next Accept can succeed.
type failingListener struct {
	net.Listener
	fails  int64 // number of the Accept that fails
	now    chan struct{}
	called atomic.Int64
}

func (l *failingListener) Accept() (net.Conn, error) {
	if l.called.Add(1) == l.fails {
		<-l.now
		return nil, errFilter
	}
	return l.Listener.Accept()
}

// failing returns a listener of the stack that wraps one that fails in the given Accept.
func (r *run) failing(in int64) (net.Listener, *failingListener) {
	below, err := net.Listen("tcp", ownAddress)
	check(err)
	l := &failingListener{Listener: below, fails: in, now: make(chan struct{})}
	ln, err := r.NewListener(l)
	check(err)
	return ln, l
}
