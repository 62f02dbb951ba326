//go:build linux

package stream

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/timing"
)

var errAway = fmt.Errorf("connection has not come home from shared memory: %w", os.ErrDeadlineExceeded)

// which of the two directions
type which uint

const (
	incoming which = 1 << iota
	outgoing
)

// comeHome brings directions of a link home, and waits for the peer's part in that, unless the peer has gone. It reports
// false if the time is over that late returns, which may change.
func (l *link) comeHome(dirs which, late func() time.Time) bool {
	if l == nil || !l.hold() {
		return true
	}
	defer l.drop()
	c := l.c
	pending := func() bool { return !l.home(dirs) }
	for l.leave(); pending() && !c.is(closed); l.leave() {
		if l.bell.Gone() {
			for l.visiting.Load() > 0 { // one may be about to bring a direction home
				runtime.Gosched()
			}
			return true
		}
		deadline := late()
		if !deadline.IsZero() && !time.Now().Before(deadline) {
			return false
		}
		var in, out = l.reader.gate.Load(), l.writer.gate.Load()
		l.bell.Sleep(func() { l.reader.ring.Sleep(); l.writer.ring.Sleep() }, func() bool {
			return !pending() || l.reader.gate.Load() != in || l.writer.gate.Load() != out || l.bell.Gone() || c.is(closed) ||
				late() != deadline
		}, deadline)
	}
	return true
}

// within is a time for comeHome.
func within(d time.Duration) func() time.Time {
	at := time.Now().Add(d)
	return func() time.Time { return at }
}

// home reports whether the directions are home.
func (l *link) home(dirs which) bool {
	return (dirs&incoming == 0 || l.reader.at() == home) && (dirs&outgoing == 0 || l.writer.at() == home)
}

// lockAtHome takes the lock of a direction once that is home, or will never be. It fails with the direction's deadline.
func (c *Conn) lockAtHome(dir which, mu sync.Locker, deadline *atomic.Int64) error {
	for {
		if !c.linked.Load().comeHome(dir, func() time.Time { return until(deadline.Load()) }) {
			return os.ErrDeadlineExceeded
		}
		mu.Lock()
		if l := c.linked.Load(); l == nil || l.home(dir) || l.bell.Gone() || c.is(closed) {
			return nil
		}
		mu.Unlock() // it has moved again
	}
}

// File returns a copy of the TCP socket; see net.TCPConn. The connection stays on TCP from then on, in this process; all
// that was in shared memory is on TCP before. It fails if that takes more than ten seconds, because the peer does not
// answer, or the kernel is so short of memory that TCP does not take it.
func (c *Conn) File() (*os.File, error) {
	c.stay(errGiven)
	if !c.linked.Load().comeHome(incoming|outgoing, within(timing.File)) {
		return nil, c.fail("file", errAway)
	}
	return c.tcp.File()
}

// rawConn is what SyscallConn returns.
type rawConn struct {
	c   *Conn
	raw syscall.RawConn
}

// SyscallConn returns a raw connection to the TCP socket; see net.TCPConn. For Control, both directions come home, because
// the program may write, and wait for the descriptor to become readable. The direction from the peer does not move until
// the program's Reads show that it waits in them; see polled.
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
	r.c.linked.Load().comeHome(incoming|outgoing, within(timing.Home))
	return r.raw.Control(f)
}

func (r *rawConn) Read(f func(fd uintptr) (done bool)) error {
	c := r.c
	defer raceRead()
	if done, err := r.look(f); done || err != nil {
		return err
	}
	if err := c.lockAtHome(incoming, &c.rmu, &c.readDeadline); err != nil {
		return c.fail("raw-read", err)
	}
	defer c.rmu.Unlock()
	err := r.raw.Read(f)
	r.raw.Control(c.recount)
	return err
}

// look lets f look at the socket once without bringing the direction home, if all that is unread is on TCP: most programs
// only want to know whether something has arrived.
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
	l := c.linked.Load()
	if l == nil {
		return false, nil
	}
	in := &l.reader
	in.reclaim()
	switch {
	case in.at() == inRing && in.ring.Empty(), in.at() == onTCP && !in.gate.Load().Moved():
		err = r.raw.Control(func(fd uintptr) {
			done = f(fd)
			c.recount(fd)
			in.ring.Before(c.in.Load())
		})
	}
	return done, err
}

// recount takes the kernel's count of what was read, because the program may have read from the socket itself. rmu is held.
func (c *Conn) recount(fd uintptr) {
	if k, ok := count(int(fd)); ok && k.state == tcpEstablished && c.in.Load() != k.received-k.unread {
		c.in.Store(k.received - k.unread)
		c.firstIn.seal()
	}
}

func (r *rawConn) Write(f func(fd uintptr) (done bool)) error {
	c := r.c
	raceWrite()
	if err := c.lockAtHome(outgoing, &c.wmu, &c.writeDeadline); err != nil {
		return c.fail("raw-write", err)
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
