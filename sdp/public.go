package sdp

import (
	"io"
	"net"
	"runtime"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
)

// Conn is a stream connection over RDMA. It is a [net.Conn] with the methods of
// [net.TCPConn], and all its methods are safe for concurrent use. Addresses and
// errors are those of package net: io.EOF is bare, and every other error is a
// [*net.OpError].
//
// A Conn that becomes unreachable without having been closed is closed by the
// garbage collector, as a net.TCPConn is.
type Conn struct {
	*conn // what works for the connection; it never refers to the Conn
}

var _ net.Conn = (*Conn)(nil)

// Every method below keeps the Conn reachable until the call has returned. Without
// that, a Read could find its connection collected, because the last use of the
// Conn was the call itself.

// publish returns the Conn that the program gets for c.
func publish(c *conn) *Conn {
	outer := &Conn{c}
	if !bubble.Inside() { // no goroutine outside a synctest bubble may touch what is inside
		runtime.AddCleanup(outer, (*conn).dropped, c)
	}
	return outer
}

// dropped closes a connection that the program has lost. It is a cleanup and must
// not block.
func (c *conn) dropped() {
	go c.Close()
}

// Read reads what has arrived, at least one byte and at most len(b), and waits if
// nothing has. It returns io.EOF when the peer has ended its direction, or when the
// peer's process has ended and everything that its Writes had accepted was read.
// Other errors wrap net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET, or
// what was wrong with the connection; bytes that arrived before are read first. It
// allocates nothing.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.conn.Read(b)
	runtime.KeepAlive(c)
	return n, err
}

// Write writes b to the stream and returns when all of it has left this process:
// in the memory that both ends share (shm), in the kernel's socket (iwarp) or with
// the NIC (verbs). n is how many bytes have. Errors wrap net.ErrClosed,
// os.ErrDeadlineExceeded, syscall.EPIPE after CloseWrite, syscall.ECONNRESET, or
// what was wrong with the connection. It allocates nothing.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.conn.Write(b)
	runtime.KeepAlive(c)
	return n, err
}

// ReadFrom writes everything that r returns until its end. io.Copy uses it.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.conn.ReadFrom(r)
	runtime.KeepAlive(c)
	return n, err
}

// WriteTo writes to w what arrives, until the peer ends its direction. io.Copy uses
// it. The bytes are handed over where they lie in the library's buffers, so w must
// not keep or change them, as no io.Writer may. What w does not take is still there to be read.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	n, err := c.conn.WriteTo(w)
	runtime.KeepAlive(c)
	return n, err
}

// WriteBuffers writes the slices one after the other as if they were one, and
// consumes *v as net.Buffers.WriteTo does, which would make a Write of each slice.
func (c *Conn) WriteBuffers(v *net.Buffers) (int64, error) {
	n, err := c.conn.WriteBuffers(v)
	runtime.KeepAlive(c)
	return n, err
}

// Close closes the connection. Every call in progress returns net.ErrClosed. What
// Writes have accepted is still delivered: if that takes time, the library finishes
// in the background, as the kernel does for TCP, and [WaitClosed] waits for it.
// Close itself waits only as long as accepted bytes are still in this process, at
// most one second; see [Conn.SetLinger] for other times. The peer sees a reset
// instead of an end if bytes that it sent have not been read.
func (c *Conn) Close() error {
	err := c.conn.Close()
	runtime.KeepAlive(c)
	return err
}

// CloseRead ends the direction towards this end: Reads return io.EOF, and what
// arrives is dropped.
func (c *Conn) CloseRead() error {
	err := c.conn.CloseRead()
	runtime.KeepAlive(c)
	return err
}

// CloseWrite ends the direction towards the peer, whose Reads return io.EOF after
// everything that was written. It does not wait for that. A Write in progress fails
// with syscall.EPIPE.
func (c *Conn) CloseWrite() error {
	err := c.conn.CloseWrite()
	runtime.KeepAlive(c)
	return err
}

// LocalAddr returns the local address, a [*net.TCPAddr] or [*net.UnixAddr].
func (c *Conn) LocalAddr() net.Addr { return c.conn.LocalAddr() }

// RemoteAddr returns the peer's address, of the same type.
func (c *Conn) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// Device returns the name of the RDMA device that carries the connection: "shm",
// "verbs" or "iwarp".
func (c *Conn) Device() string { return c.conn.Device() }

// Stats returns the connection's statistics, also after Close.
func (c *Conn) Stats() ConnStats {
	s := c.conn.Stats()
	runtime.KeepAlive(c)
	return s
}

// SetDeadline sets the deadlines of Read and Write; see [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error {
	err := c.conn.SetDeadline(t)
	runtime.KeepAlive(c)
	return err
}

// SetReadDeadline sets the time after which Reads, those in progress included, fail
// with an error that wraps os.ErrDeadlineExceeded; see [net.Conn].
func (c *Conn) SetReadDeadline(t time.Time) error {
	err := c.conn.SetReadDeadline(t)
	runtime.KeepAlive(c)
	return err
}

// SetWriteDeadline sets the time after which Writes, those in progress included,
// fail with an error that wraps os.ErrDeadlineExceeded; see [net.Conn]. A message
// that has been started is sent and counted nevertheless.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	err := c.conn.SetWriteDeadline(t)
	runtime.KeepAlive(c)
	return err
}

// SetLinger sets what Close does about bytes that the peer does not have yet, as
// [net.TCPConn.SetLinger] does. With sec < 0, the default, Close returns and the
// library finishes in the background. With sec > 0 Close waits until the peer's
// host has acknowledged everything, at most sec seconds, and then goes on in the
// background. With sec == 0 what has not been sent is dropped, and the peer sees a
// reset.
func (c *Conn) SetLinger(sec int) error {
	err := c.conn.SetLinger(sec)
	runtime.KeepAlive(c)
	return err
}

// SetKeepAlive switches TCP's keepalive on or off. On iwarp and verbs it ends a
// connection whose peer has disappeared, as it does TCP's; on shm the kernel tells.
func (c *Conn) SetKeepAlive(keepalive bool) error {
	err := c.conn.SetKeepAlive(keepalive)
	runtime.KeepAlive(c)
	return err
}

// SetKeepAlivePeriod sets how long the connection is idle before TCP's keepalive
// probes the peer, and the time between probes.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error {
	err := c.conn.SetKeepAlivePeriod(d)
	runtime.KeepAlive(c)
	return err
}

// SetKeepAliveConfig sets everything about TCP's keepalive.
func (c *Conn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	err := c.conn.SetKeepAliveConfig(config)
	runtime.KeepAlive(c)
	return err
}

// SetNoDelay sets the TCP socket's option and nothing else: this library never
// delays a Write.
func (c *Conn) SetNoDelay(noDelay bool) error {
	err := c.conn.SetNoDelay(noDelay)
	runtime.KeepAlive(c)
	return err
}

// SetReadBuffer bounds approximately how many bytes may wait here for Read: in the
// kernel, and in the private buffers that the peer may fill. What the peer has been promised
// before is not withdrawn, and ends as it is used; Config.ReadBuffer bounds that too.
func (c *Conn) SetReadBuffer(bytes int) error {
	err := c.conn.SetReadBuffer(bytes)
	runtime.KeepAlive(c)
	return err
}

// SetWriteBuffer sets how many bytes the kernel holds for the peer.
func (c *Conn) SetWriteBuffer(bytes int) error {
	err := c.conn.SetWriteBuffer(bytes)
	runtime.KeepAlive(c)
	return err
}

// MultipathTCP reports whether the TCP connection uses multipath TCP.
func (c *Conn) MultipathTCP() (bool, error) {
	is, err := c.conn.MultipathTCP()
	runtime.KeepAlive(c)
	return is, err
}

// SyscallConn returns the connection as a [syscall.RawConn], for what programs use
// one for:
//
//   - Control is the TCP socket's, to set or get its options. Reading or writing it
//     there breaks the connection.
//   - Read calls its function with a descriptor that answers as the stream would to
//     a program that asks whether it is alive, as connection pools do: with EAGAIN
//     while nothing is unread, with unread bytes if there are any, with an end if
//     the peer has ended its direction. What is read there the stream still has. It
//     fails with the connection's error if that has one, and if the peer has
//     advertised bytes of which none are here to be shown.
//   - Write fails.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &keptRawConn{raw, c}, nil
}

// keptRawConn keeps the connection reachable for as long as it is itself.
type keptRawConn struct {
	syscall.RawConn
	of *Conn
}
