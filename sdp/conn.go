package sdp

import (
	"context"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/engine"
	"github.com/gosdp/gosdp/internal/observe"
	"github.com/gosdp/gosdp/sdp/stats"
)

// Conn is a connection of this library: a TCP connection that moves to shared memory and comes
// home, or an SDP connection over an RDMA device. It implements [net.Conn], and has the methods of
// [net.TCPConn]. Multiple goroutines may invoke methods on a Conn simultaneously. Every error is a
// [*net.OpError], except io.EOF.
//
// If a Conn becomes unreachable before it is closed, the garbage collector closes it, as it
// does a net.TCPConn.
type Conn struct {
	carrier carrier // does the work, and never refers to the Conn
}

var _ net.Conn = (*Conn)(nil)

// carrier is what a Conn does its work with: a [local.Conn] or an [engine.Conn].
type carrier interface {
	net.Conn
	io.ReaderFrom
	io.WriterTo
	syscall.Conn
	WriteBuffers(v *net.Buffers) (int64, error)
	CloseRead() error
	CloseWrite() error
	SetLinger(sec int) error
	SetKeepAlive(keepalive bool) error
	SetKeepAlivePeriod(d time.Duration) error
	SetKeepAliveConfig(config net.KeepAliveConfig) error
	SetNoDelay(noDelay bool) error
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
	MultipathTCP() (bool, error)
	File() (*os.File, error)
	Device() string
	observe.Conn
}

// Every method keeps the Conn reachable until it returns (runtime.KeepAlive). Otherwise a
// Read that is the program's last use of the Conn could have its connection closed by the
// cleanup while it waits.

// publish returns the Conn that the program gets.
func publish(c carrier) *Conn {
	outer := &Conn{c}
	if !bubble.Inside() { // a cleanup runs outside the bubble, and may not use what is inside
		runtime.AddCleanup(outer, dropped, c)
	}
	return outer
}

// dropped closes a connection that has become unreachable. It is a cleanup, which must not
// block.
func dropped(c carrier) {
	var info stats.OpenConn
	if c.Describe(&info); !info.Closing {
		go c.Close()
	}
}

// Read implements the net.Conn Read method. It waits until at least one byte has arrived. It
// returns io.EOF after the peer has closed its direction, or its process has ended (over verbs
// that is a reset), and everything that the peer's Writes had accepted has been read. Other errors
// wrap net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET, or the error that ended the
// connection. Read returns the bytes that arrived before the connection failed first.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.carrier.Read(b)
	runtime.KeepAlive(c)
	return n, err
}

// Write implements the net.Conn Write method. It returns when all of b has left this process:
// to the kernel's socket (TCP, iwarp), to the memory that both ends share (shm), or to the NIC
// (verbs). With an error it returns how many bytes were accepted. Errors wrap net.ErrClosed,
// os.ErrDeadlineExceeded, syscall.EPIPE after CloseWrite or the peer's Close, syscall.ECONNRESET,
// or the error that ended the connection. The first Write that finds that the peer has closed
// succeeds, as over TCP, and its bytes are lost.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.carrier.Write(b)
	runtime.KeepAlive(c)
	return n, err
}

// ReadFrom implements the [io.ReaderFrom] ReadFrom method. It reads from r until io.EOF and
// writes the bytes to the connection. If a Write fails and r is a file, its offset is that of the first
// byte that was not written.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.carrier.ReadFrom(r)
	runtime.KeepAlive(c)
	return n, err
}

// WriteTo implements the [io.WriterTo] WriteTo method. It writes what arrives to w until the
// peer closes its direction. If w has a ReadFrom, WriteTo calls that, as TCP's does, unless Write is
// known to do the same. w must not modify or retain the bytes, like any [io.Writer].
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	to := w
	if other, ok := w.(*Conn); ok {
		to = other.carrier
	}
	n, err := c.carrier.WriteTo(to)
	runtime.KeepAlive(w)
	runtime.KeepAlive(c)
	return n, err
}

// WriteBuffers writes the contents of v in one operation, and consumes v as
// [net.Buffers.WriteTo] does: after an error v has the bytes that were not written. The bytes of other
// Writes do not come between its slices. It is faster than that method, which makes a Write of each slice.
func (c *Conn) WriteBuffers(v *net.Buffers) (int64, error) {
	n, err := c.carrier.WriteBuffers(v)
	runtime.KeepAlive(c)
	return n, err
}

// CloseRead closes the direction from the peer as Linux's TCP does: Reads no longer wait. They
// return what has arrived, and io.EOF if there is nothing. After a reset, or the end of both
// directions, CloseRead and CloseWrite fail with an error that wraps syscall.ENOTCONN.
func (c *Conn) CloseRead() error {
	err := c.carrier.CloseRead()
	runtime.KeepAlive(c)
	return err
}

// CloseWrite closes the direction to the peer, whose Reads return io.EOF after everything
// that was written. CloseWrite does not wait for that. A Write in progress fails with
// syscall.EPIPE.
func (c *Conn) CloseWrite() error {
	err := c.carrier.CloseWrite()
	runtime.KeepAlive(c)
	return err
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
	err := c.carrier.Close()
	runtime.KeepAlive(c)
	return err
}

// LocalAddr returns the local address, a [*net.TCPAddr].
func (c *Conn) LocalAddr() net.Addr { return c.carrier.LocalAddr() }

// RemoteAddr returns the remote address, a [*net.TCPAddr].
func (c *Conn) RemoteAddr() net.Addr { return c.carrier.RemoteAddr() }

// Device returns the name of what carries the bytes now: "tcp" or "shm", which alternate during the
// life of a connection, or "verbs" or "iwarp".
func (c *Conn) Device() string {
	device := c.carrier.Device()
	runtime.KeepAlive(c)
	return device
}

// SetDeadline sets the read and write deadlines; see [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error {
	err := c.carrier.SetDeadline(t)
	runtime.KeepAlive(c)
	return err
}

// SetReadDeadline sets the deadline for future Reads and any Read in progress; see [net.Conn].
// After it, Reads fail with an error that wraps os.ErrDeadlineExceeded.
func (c *Conn) SetReadDeadline(t time.Time) error {
	err := c.carrier.SetReadDeadline(t)
	runtime.KeepAlive(c)
	return err
}

// SetWriteDeadline sets the deadline for future Writes and any Write in progress; see
// [net.Conn]. After it, Writes fail with an error that wraps os.ErrDeadlineExceeded. Over RDMA, a
// message that a Write has begun is still sent, and counts as written.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	err := c.carrier.SetWriteDeadline(t)
	runtime.KeepAlive(c)
	return err
}

// SetLinger sets the behavior of Close on a connection which still has data waiting to be
// sent or to be acknowledged, like [net.TCPConn.SetLinger].
//
// If sec < 0 (the default), the data is sent in the background. If sec == 0, Close discards any unsent
// data, and the peer sees a reset. If sec > 0, TCP sends in the background as with sec < 0, or the system lets Close wait; over RDMA
// Close waits until the peer's host has acknowledged the data, for at most sec seconds, and the rest
// is sent in the background.
func (c *Conn) SetLinger(sec int) error {
	err := c.carrier.SetLinger(sec)
	runtime.KeepAlive(c)
	return err
}

// SetKeepAlive sets whether the operating system should send keep-alive messages on the TCP
// connection, which end it if the peer has disappeared.
func (c *Conn) SetKeepAlive(keepalive bool) error {
	err := c.carrier.SetKeepAlive(keepalive)
	runtime.KeepAlive(c)
	return err
}

// SetKeepAlivePeriod sets how long the connection must be idle before the operating system
// sends its first keep-alive message. SetKeepAliveConfig also sets the time between messages.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error {
	err := c.carrier.SetKeepAlivePeriod(d)
	runtime.KeepAlive(c)
	return err
}

// SetKeepAliveConfig configures the keep-alive messages of the TCP connection.
func (c *Conn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	err := c.carrier.SetKeepAliveConfig(config)
	runtime.KeepAlive(c)
	return err
}

// SetNoDelay sets the TCP socket's option of that name. It has no effect on bytes that do not go
// through the socket. Over iwarp the option is always on.
func (c *Conn) SetNoDelay(noDelay bool) error {
	err := c.carrier.SetNoDelay(noDelay)
	runtime.KeepAlive(c)
	return err
}

// SetReadBuffer sets the size of the operating system's receive buffer of the TCP connection. Over
// RDMA it also sets approximately how many bytes may be unread in the library's receive buffers. It
// does not take back buffers that the peer may already use; Config.ReadBuffer limits those from the
// beginning. Over iwarp the operating system's buffer gets at least 64 KB.
func (c *Conn) SetReadBuffer(bytes int) error {
	err := c.carrier.SetReadBuffer(bytes)
	runtime.KeepAlive(c)
	return err
}

// SetWriteBuffer sets the size of the operating system's transmit buffer of the TCP connection.
func (c *Conn) SetWriteBuffer(bytes int) error {
	err := c.carrier.SetWriteBuffer(bytes)
	runtime.KeepAlive(c)
	return err
}

// MultipathTCP reports whether the TCP connection uses multipath TCP.
func (c *Conn) MultipathTCP() (bool, error) {
	uses, err := c.carrier.MultipathTCP()
	runtime.KeepAlive(c)
	return uses, err
}

// File returns a copy of the TCP socket; see [net.TCPConn.File]. A connection in shared memory comes
// home first: everything that was there is on TCP, and the connection stays there in this process.
// Another process can continue it with [FileConn], and then it may move again. File fails with
// os.ErrDeadlineExceeded if the peer does not answer within ten seconds, and with errors.ErrUnsupported
// over RDMA, where the socket does not carry the stream.
func (c *Conn) File() (*os.File, error) {
	f, err := c.carrier.File()
	runtime.KeepAlive(c)
	return f, err
}

// SyscallConn returns a [syscall.RawConn]; see [net.TCPConn.SyscallConn]. On TCP and shm it works as
// TCP's: the connection comes home for the callbacks, and may move again after them. After Control, what
// arrives stays on TCP until some Reads have waited, so that the program may poll the descriptor.
//
// Over RDMA:
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
	raw, err := c.carrier.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &rawConn{raw, c}, nil
}

// rawConn is what SyscallConn returns. It keeps the Conn reachable.
type rawConn struct {
	raw syscall.RawConn
	c   *Conn
}

func (r *rawConn) Control(f func(fd uintptr)) error {
	err := r.raw.Control(f)
	runtime.KeepAlive(r.c)
	return err
}

func (r *rawConn) Read(f func(fd uintptr) (done bool)) error {
	err := r.raw.Read(f)
	runtime.KeepAlive(r.c)
	return err
}

func (r *rawConn) Write(f func(fd uintptr) (done bool)) error {
	err := r.raw.Write(f)
	runtime.KeepAlive(r.c)
	return err
}

// Stats returns the connection's statistics. It may be called after Close.
func (c *Conn) Stats() stats.Conn {
	s := c.carrier.Stats()
	runtime.KeepAlive(c)
	return s
}

// WaitClosed waits until every closed connection of this process has delivered what its Writes
// accepted, or has failed. A program that exits earlier may lose some of that, except over shm.
// If ctx is done first, WaitClosed returns the context's error. It is safe for concurrent use.
//
// In a testing/synctest bubble it returns immediately, because Close itself waits there.
func WaitClosed(ctx context.Context) error { return engine.WaitClosed(ctx) }
