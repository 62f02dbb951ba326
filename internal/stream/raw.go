//go:build linux

package stream

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// homeTime is for how long a call waits for the peer to bring a connection home.
const homeTime = time.Second

var errAway = errors.New("connection is in shared memory, and its peer does not answer")

// which of the two directions
type which uint

const (
	incoming which = 1 << iota
	outgoing
)

// comeHome brings directions of a link home, and waits for the peer's part in that, unless the peer has gone.
func (l *link) comeHome(dirs which) error {
	if l == nil || !l.hold() {
		return nil
	}
	defer l.drop()
	c := l.c
	deadline := time.Now().Add(homeTime)
	pending := func() bool { return !l.home(dirs) }
	for l.leave(); pending() && !l.bell.Gone() && !c.is(closed); l.leave() {
		if time.Now().After(deadline) {
			return c.fail("file", errAway)
		}
		var in, out = l.reader.gate.Load(), l.writer.gate.Load()
		l.bell.Sleep(func() { l.reader.ring.Sleep(); l.writer.ring.Sleep() }, func() bool {
			return !pending() || l.reader.gate.Load() != in || l.writer.gate.Load() != out || l.bell.Gone() || c.is(closed)
		}, deadline)
	}
	return nil
}

// home reports whether the directions are home.
func (l *link) home(dirs which) bool {
	return (dirs&incoming == 0 || l.reader.at() == home) && (dirs&outgoing == 0 || l.writer.at() == home)
}

// lockAtHome takes the lock of a direction once that is home, or will never be.
func (c *Conn) lockAtHome(dir which, mu *sync.Mutex) error {
	for {
		if err := c.linked.Load().comeHome(dir); err != nil {
			return err
		}
		mu.Lock()
		if l := c.linked.Load(); l == nil || l.home(dir) || l.bell.Gone() || c.is(closed) {
			return nil
		}
		mu.Unlock() // it has moved again
	}
}

// File returns a copy of the TCP socket; see net.TCPConn. The connection stays on TCP from then on, in this process; all
// that was in shared memory is on TCP before. It fails if the peer does not answer within a second.
func (c *Conn) File() (*os.File, error) {
	c.stay(errPinned)
	if err := c.linked.Load().comeHome(incoming | outgoing); err != nil {
		return nil, err
	}
	return c.tcp.File()
}

// rawConn is what SyscallConn returns.
type rawConn struct {
	c   *Conn
	raw syscall.RawConn
}

// SyscallConn returns a raw connection to the TCP socket; see net.TCPConn. After Control, the descriptor
// becomes readable when something has arrived, as a program that polls it expects: the direction from the peer does not
// move until the program's Reads show that it waits in them; see polled.
// Read and Write bring their direction home, but a Read that looks whether anything has arrived does not.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &rawConn{c, raw}, nil
}

func (r *rawConn) Control(f func(fd uintptr)) error {
	r.c.polled.suspect()
	r.c.Leave() // what arrives from now on comes through the socket
	return r.raw.Control(f)
}

func (r *rawConn) Read(f func(fd uintptr) (done bool)) error {
	c := r.c
	if done, err := r.look(f); done || err != nil {
		return err
	}
	if err := c.lockAtHome(incoming, &c.rmu); err != nil {
		return err
	}
	defer c.rmu.Unlock()
	err := r.raw.Read(f)
	r.raw.Control(func(fd uintptr) {
		if k, ok := count(int(fd)); ok {
			c.in.Store(k.received - k.unread)
			c.firstIn.seal()
		}
	})
	return err
}

// look lets f look at the socket of a direction that is in an empty ring: nothing is on TCP but perhaps an end.
func (r *rawConn) look(f func(fd uintptr) (done bool)) (done bool, err error) {
	c := r.c
	c.rmu.Lock()
	defer c.rmu.Unlock()
	if c.is(closed) {
		return true, c.fail("raw-read", net.ErrClosed)
	}
	if expired(c.readDeadline.Load()) {
		return true, c.fail("raw-read", os.ErrDeadlineExceeded)
	}
	if l := c.linked.Load(); l != nil && l.reader.at() == inRing && l.reader.ring.Empty() {
		err = r.raw.Control(func(fd uintptr) { done = f(fd) })
	}
	return done, err
}

func (r *rawConn) Write(f func(fd uintptr) (done bool)) error {
	c := r.c
	if err := c.lockAtHome(outgoing, &c.wmu); err != nil {
		return err
	}
	defer c.wmu.Unlock()
	err := r.raw.Write(f)
	r.raw.Control(func(fd uintptr) {
		if k, ok := count(int(fd)); ok {
			c.out.Store(k.written)
			c.firstOut.seal()
		}
	})
	return err
}
