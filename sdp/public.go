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

// Conn is an SDP connection. It implements [net.Conn], and has the methods of [net.TCPConn]
// except File. Multiple goroutines may invoke methods on a Conn simultaneously. Every error is
// a [*net.OpError], except io.EOF.
//
// If a Conn becomes unreachable before it is closed, the garbage collector closes it, as it
// does a net.TCPConn.
type Conn struct {
	*conn       // does the work, and never refers to the Conn
	decoy decoy // of RawConn.Read; none while one is in progress; guarded by conn.mu
}

var _ net.Conn = (*Conn)(nil)

// Every method keeps the Conn reachable until it returns (runtime.KeepAlive). Otherwise a
// Read that is the program's last use of the Conn could have its connection closed by the
// cleanup while it waits.

// publish returns the Conn that the program gets for c.
func publish(c *conn) *Conn {
	outer := &Conn{conn: c}
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

// Read implements the net.Conn Read method. It waits until at least one byte has arrived. It
// returns io.EOF after the peer has closed its direction, or its process has ended (over verbs
// that is a reset), and everything that the peer's Writes had accepted has been read. Other errors
// wrap net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET, or the error that ended the
// connection. Read returns the bytes that arrived before the connection failed first.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.conn.Read(b)
	runtime.KeepAlive(c)
	return n, err
}

// Write implements the net.Conn Write method. It returns when all of b has left this process:
// to the memory that both ends share (shm), to the kernel's socket (iwarp), or to the NIC
// (verbs). With an error it returns how many bytes the device has accepted. Errors wrap net.ErrClosed,
// os.ErrDeadlineExceeded, syscall.EPIPE after CloseWrite or the peer's Close, syscall.ECONNRESET,
// or the error that ended the connection. The first Write that finds that the peer has closed
// succeeds, as over TCP; its bytes are lost, and if there are more than 64 KB, only so many count.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.conn.Write(b)
	runtime.KeepAlive(c)
	return n, err
}

// Close closes the connection. It may be called at any time: Reads, Writes and other calls in
// progress return net.ErrClosed.
//
// Bytes that Writes have accepted are still delivered, in the background if that takes time,
// as the kernel does for TCP. [WaitClosed] waits for this. Over verbs, Close itself waits for up to
// a second while the NIC has not sent such bytes; see also [Conn.SetLinger]. If the program
// has not read all bytes that have arrived, the peer sees a reset: its Reads return it instead of
// io.EOF, unless CloseWrite was called before.
func (c *Conn) Close() error {
	err := c.conn.Close()
	c.mu.Lock()
	d := c.decoy
	c.decoy = decoy{}
	c.mu.Unlock()
	d.close()
	runtime.KeepAlive(c)
	return err
}

// LocalAddr returns the local address, a [*net.TCPAddr] or [*net.UnixAddr].
func (c *Conn) LocalAddr() net.Addr { return c.localAddr() }

// RemoteAddr returns the remote address, a [*net.TCPAddr] or [*net.UnixAddr].
func (c *Conn) RemoteAddr() net.Addr { return c.remoteAddr() }

// Device returns the name of the device that carries the connection: "shm", "verbs" or
// "iwarp".
func (c *Conn) Device() string { return c.device }

// SetDeadline sets the read and write deadlines; see [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets the deadline for future Reads and any Read in progress; see [net.Conn].
// After it, Reads fail with an error that wraps os.ErrDeadlineExceeded.
func (c *Conn) SetReadDeadline(t time.Time) error {
	defer runtime.KeepAlive(c)
	return c.setDeadline(&c.read, t)
}

// SetWriteDeadline sets the deadline for future Writes and any Write in progress; see
// [net.Conn]. After it, Writes fail with an error that wraps os.ErrDeadlineExceeded. A message
// that a Write has begun is still sent, and counts as written.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	defer runtime.KeepAlive(c)
	return c.setDeadline(&c.write, t)
}

// SetLinger sets the behavior of Close on a connection which still has data waiting to be
// sent or to be acknowledged, like [net.TCPConn.SetLinger].
//
// If sec < 0 (the default), the library finishes sending the data in the background.
//
// If sec == 0, Close discards any unsent data, and the peer sees a reset.
//
// If sec > 0, Close waits until the peer's host has acknowledged the data, for at most sec
// seconds. After that the library finishes in the background.
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

// SetKeepAlive sets whether the operating system should send keep-alive messages on the TCP
// connection. On iwarp and verbs, as with TCP, they end a connection whose peer has
// disappeared. On shm the kernel ends it without them.
func (c *Conn) SetKeepAlive(keepalive bool) error {
	return option(c, func(t interface{ SetKeepAlive(bool) error }) error { return t.SetKeepAlive(keepalive) })
}

// SetKeepAlivePeriod sets how long the connection must be idle before the operating system
// sends its first keep-alive message. SetKeepAliveConfig also sets the time between messages.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error {
	return option(c, func(t interface{ SetKeepAlivePeriod(time.Duration) error }) error { return t.SetKeepAlivePeriod(d) })
}

// SetKeepAliveConfig configures the keep-alive messages of the TCP connection.
func (c *Conn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	return option(c, func(t interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}) error {
		return t.SetKeepAliveConfig(config)
	})
}

// SetNoDelay sets the TCP socket's option of that name. It has no other effect, because this
// library never delays a Write. Over iwarp the option is always on.
func (c *Conn) SetNoDelay(noDelay bool) error {
	if c.device == "iwarp" {
		// Nagle's algorithm would hold a Write back until the peer's host has acknowledged
		// what the library has sent, which takes 40 ms if the peer has nothing to say.
		noDelay = true
	}
	return option(c, func(t interface{ SetNoDelay(bool) error }) error { return t.SetNoDelay(noDelay) })
}

// SetReadBuffer sets approximately how many bytes may be unread at this end: in the operating
// system's receive buffer, and in the library's receive buffers that the peer may fill. It
// does not take back buffers that the peer may already use; Config.ReadBuffer limits those from the
// beginning. Over iwarp the operating system's buffer gets at least 64 KB.
func (c *Conn) SetReadBuffer(bytes int) error {
	c.mu.Lock()
	if !c.closed {
		c.promise.setWindow(bytes)
	}
	c.mu.Unlock()
	if c.device == "iwarp" {
		// The credit for this end's Writes arrives after the peer's data. A smaller buffer
		// would slow down both directions, and over TCP it slows down one.
		bytes = max(bytes, leastKernelBuffer)
	}
	return localOnly(option(c, func(t interface{ SetReadBuffer(int) error }) error { return t.SetReadBuffer(bytes) }))
}

// SetWriteBuffer sets the size of the operating system's transmit buffer of the TCP connection.
func (c *Conn) SetWriteBuffer(bytes int) error {
	return localOnly(option(c, func(t interface{ SetWriteBuffer(int) error }) error { return t.SetWriteBuffer(bytes) }))
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
		return c.opError("set", fmt.Errorf("socket option not supported by %T: %w", c.tcp, errors.ErrUnsupported))
	}
	if err := set(t); err != nil {
		return c.opError("set", cause(err))
	}
	return nil
}

// SyscallConn returns a [syscall.RawConn], with which a program can set socket options and
// check whether the connection is alive:
//
//   - Control passes the descriptor of the TCP socket, to get or set its options. Reading
//     from it or writing to it breaks the connection.
//   - Read passes the descriptor of another socket, for gRPC, which reads so, and for programs
//     such as connection pools that read to check whether the connection is alive. Reading
//     from it returns EAGAIN if nothing is unread, some of the unread bytes if there are any,
//     and end of file if the peer has closed its direction. As with TCP, a byte that was read
//     is no longer in the stream. Read fails if the connection has failed, or if f returns
//     true while the peer has advertised bytes that have not arrived yet.
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
