//go:build linux

package stream

import (
	"math"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/lockorder"
)

// Conn is a connection. Its methods are those of net.TCPConn, and may be called concurrently. Errors
// are those of net.TCPConn: *net.OpError, except io.EOF.
type Conn struct {
	tcp *net.TCPConn

	rmu lockorder.Mutex[lockorder.StreamRead]
	in  atomic.Uint64 // bytes that Reads have taken from TCP; written with rmu
	end error         // what the next Read returns: the kernel has reported it already; guarded by rmu

	wmu    lockorder.Mutex[lockorder.StreamWrite]
	out    atomic.Uint64 // bytes that Writes have put into TCP; written with wmu
	broken syscall.Errno // how Writes have ended, other than on TCP; 0: they have not. Guarded by wmu

	linked    atomic.Pointer[link]
	violation atomic.Pointer[error]
	state     atomic.Uint32 // closed, readShut, writeShut

	mu         lockorder.Mutex[lockorder.StreamState]
	interrupts int32 // calls that want a Write that waits to return; guarded by mu
	// What the program has set, since epoch; 0: none. The socket has the same, but for interrupts. Written with mu.
	readDeadline, writeDeadline atomic.Int64
	// Bytes that Reads have taken from the rings of former links, and that Writes have put there; and how many of them in and
	// out have counted, too. Guarded by mu.
	ringIn, ringOut, bothIn, bothOut uint64

	mover
}

// New returns a Conn on a TCP socket through which no byte has gone. The socket belongs to it.
func New(tcp *net.TCPConn) *Conn {
	c := new(Conn)
	c.Init(tcp)
	return c
}

// Init is New for a Conn that is part of another struct. The Conn must be zero.
func (c *Conn) Init(tcp *net.TCPConn) { c.tcp = tcp }

// Inherit is Init for a TCP socket that another Conn has used, perhaps in another process, and does not any more.
func (c *Conn) Inherit(tcp *net.TCPConn) {
	c.Init(tcp)
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
}

// The bits of Conn.state.
const (
	closed = 1 << iota
	readShut
	writeShut
	cut  // something else than a call of the program has found the reset, which the next call returns
	told // a call has returned that, as a kernel reports a reset to one call
)

func (c *Conn) is(bit uint32) bool { return c.state.Load()&bit != 0 }

// tell reports whether no call has returned the reset yet.
func (c *Conn) tell() bool { return c.state.Or(told)&told == 0 }

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
	c.mu.Lock()
	err := c.tcp.SetReadDeadline(t)
	if err == nil {
		c.readDeadline.Store(sinceEpoch(t))
	}
	c.mu.Unlock()
	c.rouse()
	return err
}

// SetWriteDeadline sets the deadline of Writes; see net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	err := c.armWrite(t)
	if err == nil {
		c.writeDeadline.Store(sinceEpoch(t))
	}
	c.mu.Unlock()
	c.rouse()
	return err
}

// armWrite sets the socket's deadline. mu is held.
func (c *Conn) armWrite(t time.Time) error {
	if c.interrupts > 0 {
		t = past
	}
	return c.tcp.SetWriteDeadline(t)
}

var past = time.Unix(1, 0)

// interruptWrite makes a Write that waits return, so that the caller gets wmu. resume takes it back.
func (c *Conn) interruptWrite() (resume func()) {
	interrupt := func(n int32) {
		c.mu.Lock()
		c.interrupts += n
		c.armWrite(until(c.writeDeadline.Load()))
		c.mu.Unlock()
	}
	interrupt(1)
	c.rouse()
	return func() { interrupt(-1) }
}

// SetReadBuffer acts on the TCP socket; see net.TCPConn.
func (c *Conn) SetReadBuffer(bytes int) error { return c.tcp.SetReadBuffer(bytes) }

// SetNoDelay acts on the TCP socket; see net.TCPConn.
func (c *Conn) SetNoDelay(noDelay bool) error { return c.tcp.SetNoDelay(noDelay) }

// SetKeepAlive acts on the TCP socket; see net.TCPConn.
func (c *Conn) SetKeepAlive(keepalive bool) error { return c.tcp.SetKeepAlive(keepalive) }

// SetKeepAlivePeriod acts on the TCP socket; see net.TCPConn.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error { return c.tcp.SetKeepAlivePeriod(d) }

// SetKeepAliveConfig acts on the TCP socket; see net.TCPConn.
func (c *Conn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	return c.tcp.SetKeepAliveConfig(config)
}

// MultipathTCP reports on the TCP socket; see net.TCPConn.
func (c *Conn) MultipathTCP() (bool, error) { return c.tcp.MultipathTCP() }

// SetWriteBuffer sets the size of the socket's buffer. The ring buffers no more.
func (c *Conn) SetWriteBuffer(bytes int) error {
	err := c.tcp.SetWriteBuffer(bytes)
	if l := c.linked.Load(); l != nil && l.hold() {
		l.measure()
		l.drop()
	}
	return err
}

// LocalAddr returns the TCP connection's local address.
func (c *Conn) LocalAddr() net.Addr { return c.tcp.LocalAddr() }

// RemoteAddr returns the TCP connection's remote address.
func (c *Conn) RemoteAddr() net.Addr { return c.tcp.RemoteAddr() }

// Totals returns how many bytes Reads have returned and Writes have accepted, wherever the connection was.
func (c *Conn) Totals() (read, written uint64) {
	in, out := c.Rings()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.in.Load() + in - c.bothIn, c.out.Load() + out - c.bothOut
}

// Rings returns how many of these bytes have gone through shared memory.
func (c *Conn) Rings() (read, written uint64) {
	for ; ; runtime.Gosched() {
		c.mu.Lock()
		read, written = c.ringIn, c.ringOut
		l := c.linked.Load()
		held := l != nil && l.hold()
		if held {
			read, written = read+l.reader.ring.Position(), written+l.writer.ring.Position()
		}
		c.mu.Unlock()
		if held {
			l.drop()
		}
		if held || l == nil {
			return read, written
		} // otherwise it adds its bytes in a moment
	}
}

// Unread returns how many bytes have arrived in the ring that no Read has taken. Those on TCP the kernel knows.
func (c *Conn) Unread() int {
	l := c.linked.Load()
	if l == nil || !l.hold() {
		return 0
	}
	defer l.drop()
	if w := l.reader.gate.Load(); !w.Moved() || w.Recalled() {
		return 0
	}
	return int(max(0, int64(l.reader.ring.Head()-l.reader.ring.Position())))
}

// Device returns "shm" while a direction is in the ring, and otherwise "tcp".
func (c *Conn) Device() string {
	if l := c.linked.Load(); l != nil && (l.reader.at() == inRing || l.writer.at() == inRing) {
		return "shm"
	}
	return "tcp"
}

// fail makes the error that package net would.
func (c *Conn) fail(op string, err error) error {
	if errno, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError(op, errno)
	}
	return c.opError(op, err)
}

func (c *Conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: c.tcp.LocalAddr().Network(), Source: c.tcp.LocalAddr(), Addr: c.tcp.RemoteAddr(), Err: err}
}
