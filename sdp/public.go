package sdp

import (
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
)

// Conn is a stream connection over RDMA. It is a [net.Conn] with the methods of
// [net.TCPConn]. All methods are safe for concurrent use. Addresses and errors are those of
// package net: io.EOF is returned as it is, and every other error is a [*net.OpError].
//
// A Conn that becomes unreachable before it was closed is closed by the garbage collector,
// like a net.TCPConn.
type Conn struct {
	*conn // does the work, and never refers to the Conn
}

var _ net.Conn = (*Conn)(nil)

// Every method keeps the Conn reachable until it returns (runtime.KeepAlive). Otherwise a
// Read that is the program's last use of the Conn could have its connection closed by the
// cleanup while it waits.

// publish returns the Conn that the program gets for c.
func publish(c *conn) *Conn {
	outer := &Conn{c}
	if !bubble.Inside() { // a cleanup runs outside the bubble, and may not use what is inside
		runtime.AddCleanup(outer, (*conn).dropped, c)
	}
	return outer
}

// dropped closes a connection that has become unreachable. It is a cleanup, which must not
// block.
func (c *conn) dropped() {
	go c.Close()
}

// Read reads up to len(b) bytes of what has arrived. If nothing has, it waits for at least
// one byte. It returns io.EOF after the peer has closed its direction, or after the peer's
// process has ended and everything that its Writes had accepted was read. Other errors wrap
// net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET, or the error that ended the
// connection. Bytes that arrived before such an error are read first.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.conn.Read(b)
	runtime.KeepAlive(c)
	return n, err
}

// Write writes b to the stream. It returns when all of b has left this process: to the
// memory that both ends share (shm), to the kernel's socket (iwarp) or to the NIC (verbs).
// It returns how many bytes have. Errors wrap net.ErrClosed, os.ErrDeadlineExceeded,
// syscall.EPIPE after CloseWrite, syscall.ECONNRESET, or the error that ended the connection.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.conn.Write(b)
	runtime.KeepAlive(c)
	return n, err
}

// Close closes the connection. All calls in progress return net.ErrClosed. Bytes that Writes
// have accepted are still delivered: if that takes time, the library continues in the
// background, as the kernel does for TCP, and [WaitClosed] waits for it. Close itself waits
// only while such bytes are still in this process, and at most one second; see
// [Conn.SetLinger]. If bytes from the peer have not been read, the peer sees a reset instead
// of an end.
func (c *Conn) Close() error {
	err := c.conn.Close()
	runtime.KeepAlive(c)
	return err
}

// LocalAddr returns the local address, a [*net.TCPAddr] or [*net.UnixAddr].
func (c *Conn) LocalAddr() net.Addr { return c.localAddr() }

// RemoteAddr returns the peer's address, of the same type.
func (c *Conn) RemoteAddr() net.Addr { return c.remoteAddr() }

// Device returns the name of the device that carries the connection: "shm", "verbs" or
// "iwarp".
func (c *Conn) Device() string { return c.device }

// SetDeadline sets the deadlines of Read and Write; see [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets the time after which Reads fail with an error that wraps
// os.ErrDeadlineExceeded, including those in progress; see [net.Conn].
func (c *Conn) SetReadDeadline(t time.Time) error {
	defer runtime.KeepAlive(c)
	return c.setDeadline(&c.read, t)
}

// SetWriteDeadline sets the time after which Writes fail with an error that wraps
// os.ErrDeadlineExceeded, including those in progress; see [net.Conn]. A message that a
// Write has begun is sent and counted nevertheless.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	defer runtime.KeepAlive(c)
	return c.setDeadline(&c.write, t)
}

// SetLinger sets what Close does about bytes that the peer has not received yet, like
// [net.TCPConn.SetLinger]. If sec < 0, the default, Close returns and the library finishes
// in the background. If sec > 0, Close waits until the peer's host has acknowledged
// everything, but at most sec seconds, and then finishes in the background. If sec == 0,
// Close discards what has not been sent, and the peer sees a reset.
func (c *Conn) SetLinger(sec int) error {
	defer runtime.KeepAlive(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("set", errClosed)
	}
	c.closer.linger = int32(max(-1, min(sec, math.MaxInt32)))
	return nil
}

// SetKeepAlive turns TCP's keepalive on or off. On iwarp and verbs, as with TCP, keepalive
// ends a connection whose peer has disappeared. On shm the kernel does so without it.
func (c *Conn) SetKeepAlive(keepalive bool) error {
	return option(c, func(t interface{ SetKeepAlive(bool) error }) error { return t.SetKeepAlive(keepalive) })
}

// SetKeepAlivePeriod sets how long the connection is idle before TCP's keepalive probes the
// peer, and the time between probes.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error {
	return option(c, func(t interface{ SetKeepAlivePeriod(time.Duration) error }) error { return t.SetKeepAlivePeriod(d) })
}

// SetKeepAliveConfig sets all parameters of TCP's keepalive.
func (c *Conn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	return option(c, func(t interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}) error {
		return t.SetKeepAliveConfig(config)
	})
}

// SetNoDelay sets the option of the TCP socket. It changes nothing else, because this library
// never delays a Write.
func (c *Conn) SetNoDelay(noDelay bool) error {
	return option(c, func(t interface{ SetNoDelay(bool) error }) error { return t.SetNoDelay(noDelay) })
}

// SetReadBuffer sets approximately how many bytes may be unread at this end: in the kernel,
// and in the private buffers that the peer may fill. The peer may still use buffers that it
// was promised before. Config.ReadBuffer limits those as well.
func (c *Conn) SetReadBuffer(bytes int) error {
	c.mu.Lock()
	if !c.closed {
		c.promise.setWindow(bytes)
	}
	c.mu.Unlock()
	return option(c, func(t interface{ SetReadBuffer(int) error }) error { return t.SetReadBuffer(bytes) })
}

// SetWriteBuffer sets how many bytes the kernel holds for the peer.
func (c *Conn) SetWriteBuffer(bytes int) error {
	return option(c, func(t interface{ SetWriteBuffer(int) error }) error { return t.SetWriteBuffer(bytes) })
}

// MultipathTCP reports whether the TCP connection uses multipath TCP.
func (c *Conn) MultipathTCP() (bool, error) {
	defer runtime.KeepAlive(c)
	if t, ok := c.tcp.(interface{ MultipathTCP() (bool, error) }); ok {
		return t.MultipathTCP()
	}
	return false, nil
}

// option calls set with the TCP connection, if that has the methods of T: a connection of
// another type, which the program has made, may lack them. On iwarp the TCP connection
// carries everything. On other devices it stays open without traffic, because it holds the
// addresses, and on verbs because its keepalive finds that the peer's host has disappeared.
func option[T any](c *Conn, set func(T) error) error {
	defer runtime.KeepAlive(c)
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return c.opError("set", errClosed)
	}
	t, ok := c.tcp.(T)
	if !ok {
		return c.opError("set", fmt.Errorf("%T has no such option: %w", c.tcp, errors.ErrUnsupported))
	}
	if err := set(t); err != nil {
		return c.opError("set", cause(err))
	}
	return nil
}

// SyscallConn returns a [syscall.RawConn] for the purposes that programs have for one:
//
//   - Control passes the descriptor of the TCP socket, to get or set its options. Reading
//     from it or writing to it breaks the connection.
//   - Read passes a decoy descriptor, for programs such as connection pools that check
//     whether the connection is alive by reading. Reading from it returns EAGAIN if nothing
//     is unread, unread bytes if there are any, and an end if the peer has closed its
//     direction. The stream keeps the bytes. Read fails if the connection has failed, or if
//     the peer has advertised bytes that have not arrived yet.
//   - Write always fails.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	raw := &rawConn{c: c}
	if sc, ok := c.tcp.(syscall.Conn); ok {
		rc, err := sc.SyscallConn()
		if err != nil {
			return nil, err
		}
		raw.tcp = rc
	}
	return raw, nil
}
