//go:build !linux

package stream

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// Conn is a TCP connection. It stays one: shared memory is for Linux.
type Conn struct {
	*net.TCPConn
	policy  *Policy
	in, out atomic.Uint64
}

// New returns a Conn on a TCP socket through which no byte has gone. The socket belongs to it.
func New(tcp *net.TCPConn) *Conn { return &Conn{TCPConn: tcp} }

// Inherit returns a Conn on a TCP socket that another Conn has used, perhaps in another process, and does not any more.
func Inherit(tcp *net.TCPConn) *Conn { return New(tcp) }

// Init is New for a Conn that is part of another struct. The Conn must be zero.
func (c *Conn) Init(tcp *net.TCPConn) { c.TCPConn = tcp }

func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.in.Add(uint64(n))
	return n, err
}

func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	c.out.Add(uint64(n))
	return n, err
}

// ReadFrom reads from r until io.EOF, and writes to the connection; see net.TCPConn.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.TCPConn.ReadFrom(r)
	c.out.Add(uint64(n))
	return n, err
}

// WriteTo writes what arrives to w until the peer closes its direction; see net.TCPConn.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	n, err := c.TCPConn.WriteTo(w)
	c.in.Add(uint64(n))
	return n, err
}

// WriteBuffers writes the contents of v in one operation, as net.Buffers.WriteTo does.
func (c *Conn) WriteBuffers(v *net.Buffers) (int64, error) {
	n, err := v.WriteTo(c.TCPConn)
	c.out.Add(uint64(n))
	return n, err
}

var errSystem = errors.New("shared memory needs Linux")

// Move does nothing here.
func (c *Conn) Move(dialled bool, p *Policy) { c.policy = p }

// Meet fails here.
func (c *Conn) Meet(ctx context.Context, limit time.Duration) error { return errSystem }

// TryMeet fails here.
func (c *Conn) TryMeet() (met bool, err error) { return false, errSystem }

// Leave reports whether the connection is on TCP now.
func (c *Conn) Leave() bool { return true }

// Device returns "tcp".
func (c *Conn) Device() string { return "tcp" }

// Why returns why the connection is on TCP.
func (c *Conn) Why() error {
	if c.policy == nil {
		return errNoPolicy
	}
	return errSystem
}

// Moves returns how often the connection has moved.
func (c *Conn) Moves() uint64 { return 0 }

// Totals returns how many bytes Reads have returned and Writes have accepted.
func (c *Conn) Totals() (read, written uint64) { return c.in.Load(), c.out.Load() }

// Counts returns how many bytes have gone through the TCP connection.
func (c *Conn) Counts() (read, written uint64) { return c.Totals() }

// Unread returns how many bytes have arrived in the ring that no Read has taken.
func (c *Conn) Unread() int { return 0 }

// Violation returns how the peer has broken the protocol, or nil.
func (c *Conn) Violation() error { return nil }

// LeaveAll makes all connections of the process come home.
func LeaveAll(why error) {}
