//go:build linux

package stream

import (
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Conn is a connection. Its methods are those of net.TCPConn, and may be called concurrently. Errors
// are those of net.TCPConn: *net.OpError, except io.EOF.
type Conn struct {
	tcp *net.TCPConn

	rmu sync.Mutex
	in  atomic.Uint64 // bytes that Reads have taken from TCP; written with rmu
	end error         // what the next Read returns: the kernel has reported it already; guarded by rmu

	wmu    sync.Mutex
	out    atomic.Uint64 // bytes that Writes have put into TCP; written with wmu
	broken error         // how Writes have ended, other than on TCP; guarded by wmu

	state     atomic.Uint32 // closed, readShut, writeShut
	linked    atomic.Pointer[link]
	violation atomic.Pointer[error]

	deadlines
	mover
}

// New returns a Conn on a TCP socket through which no byte has gone. The socket belongs to it.
func New(tcp *net.TCPConn) *Conn { return &Conn{tcp: tcp} }

// Inherit returns a Conn on a TCP socket that another Conn has used, perhaps in another process, and does not any more.
func Inherit(tcp *net.TCPConn) *Conn {
	c := New(tcp)
	if raw, err := tcp.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			if k, ok := count(int(fd)); ok {
				c.in.Store(k.received - k.unread)
				c.out.Store(k.written)
			}
		})
	}
	c.firstIn.seal()
	c.firstOut.seal()
	return c
}

// The bits of Conn.state.
const (
	closed = 1 << iota
	readShut
	writeShut
)

func (c *Conn) is(bit uint32) bool { return c.state.Load()&bit != 0 }

// deadlines are the times that the program has set. The TCP socket has the same.
type deadlines struct {
	mu          sync.Mutex
	read, write atomic.Int64 // since epoch; 0: none
	interrupts  int          // calls that want a Write that waits to return; guarded by mu
}

var epoch = time.Now()

// sinceEpoch converts a deadline, by the monotonic clock if t has a reading of it.
func sinceEpoch(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	left, now := int64(time.Until(t)), int64(time.Since(epoch))
	if left > math.MaxInt64-now {
		return math.MaxInt64
	}
	return max(1, left+now)
}

func expired(deadline int64) bool { return deadline != 0 && int64(time.Since(epoch)) >= deadline }

// until is the inverse of sinceEpoch.
func until(deadline int64) time.Time {
	if deadline == 0 {
		return time.Time{}
	}
	return epoch.Add(time.Duration(deadline))
}

// SetDeadline sets both deadlines; see net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets the deadline of Reads; see net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.deadlines.mu.Lock()
	err := c.tcp.SetReadDeadline(t)
	if err == nil {
		c.read.Store(sinceEpoch(t))
	}
	c.deadlines.mu.Unlock()
	c.rouse()
	return err
}

// SetWriteDeadline sets the deadline of Writes; see net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.deadlines.mu.Lock()
	err := c.armWrite(t)
	if err == nil {
		c.write.Store(sinceEpoch(t))
	}
	c.deadlines.mu.Unlock()
	c.rouse()
	return err
}

// armWrite sets the socket's deadline. deadlines.mu is held.
func (c *Conn) armWrite(t time.Time) error {
	if c.interrupts > 0 {
		t = past
	}
	return c.tcp.SetWriteDeadline(t)
}

var past = time.Unix(1, 0)

// interruptWrite makes a Write that waits return, so that the caller gets wmu. resume takes it back.
func (c *Conn) interruptWrite() (resume func()) {
	interrupt := func(n int) {
		c.deadlines.mu.Lock()
		c.interrupts += n
		c.armWrite(until(c.write.Load()))
		c.deadlines.mu.Unlock()
	}
	interrupt(1)
	c.rouse()
	return func() { interrupt(-1) }
}

// LocalAddr returns the TCP connection's local address.
func (c *Conn) LocalAddr() net.Addr { return c.tcp.LocalAddr() }

// RemoteAddr returns the TCP connection's remote address.
func (c *Conn) RemoteAddr() net.Addr { return c.tcp.RemoteAddr() }

// Counts returns how many bytes have gone through the TCP connection.
func (c *Conn) Counts() (read, written uint64) { return c.in.Load(), c.out.Load() }

// fail makes the error that package net would.
func (c *Conn) fail(op string, err error) error {
	if errno, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError(op, errno)
	}
	return &net.OpError{Op: op, Net: c.tcp.LocalAddr().Network(), Source: c.tcp.LocalAddr(), Addr: c.tcp.RemoteAddr(), Err: err}
}
