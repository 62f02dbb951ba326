//go:build linux

package stream

import (
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
}

var epoch = time.Now()

// sinceEpoch converts a deadline, by the monotonic clock if t has a reading of it.
func sinceEpoch(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(1, int64(time.Until(t)+time.Since(epoch)))
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
	return c.setDeadline(&c.read, t, c.tcp.SetReadDeadline)
}

// SetWriteDeadline sets the deadline of Writes; see net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.setDeadline(&c.write, t, c.tcp.SetWriteDeadline)
}

func (c *Conn) setDeadline(d *atomic.Int64, t time.Time, set func(time.Time) error) error {
	c.deadlines.mu.Lock()
	err := set(t)
	if err == nil {
		d.Store(sinceEpoch(t))
	}
	c.deadlines.mu.Unlock()
	c.rouse()
	return err
}

var past = time.Unix(1, 0)

// interruptWrite makes a Write that waits return, so that the caller gets wmu. resume takes it back.
func (c *Conn) interruptWrite() (resume func()) {
	set := func(t time.Time) {
		c.deadlines.mu.Lock()
		c.tcp.SetWriteDeadline(t)
		c.deadlines.mu.Unlock()
	}
	set(past)
	c.rouse()
	return func() { set(until(c.write.Load())) }
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
