//go:build linux && !android && (amd64 || arm64)

// This file is not part of the Go distribution. "sdp go" has added it to package net, and a line
// to each function that calls it, so that TCP connections use the Sockets Direct Protocol if the
// peer speaks it. See docs/adoption.md of github.com/gosdp/gosdp.

package net

import (
	"context"
	inner "internal/gosdp/net"
	"internal/gosdp/sdp"
	"internal/poll"
	"internal/runtime/exithook"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// sdpBuild is what "sdp version" finds in a program.
var sdpBuild = "sdp-go-build{gosdp=@@VERSION@@;go=@@GOVERSION@@}"

// sdpLink is the additional state of a netFD whose connection or listener uses SDP. The socket's
// descriptor belongs to another netFD, sock. The library refers only to that one, so the garbage
// collector frees a connection that the program has dropped.
type sdpLink struct {
	conn     *sdp.Conn     // nil: a listener
	listener *sdp.Listener // nil: a connection
	sock     *netFD
	closed   atomic.Bool

	rawOnce sync.Once
	raw     syscall.RawConn // use rawConn
	rawErr  error
}

// rawConn returns the library's RawConn, always the same one, so that a Read makes none.
func (l *sdpLink) rawConn() (syscall.RawConn, error) {
	l.rawOnce.Do(func() { l.raw, l.rawErr = l.conn.SyscallConn() })
	return l.raw, l.rawErr
}

// sdpUnhooked is the key of contexts for calls that use plain TCP. The library's own calls have it,
// including those of a copy of the library that the program imports itself.
type sdpUnhooked = struct{ GosdpUnhooked struct{} }

func sdpPlain(ctx context.Context) context.Context {
	return context.WithValue(ctx, sdpUnhooked{}, true)
}

// sdpWanted reports whether a Dial or Listen with ctx may use SDP.
func sdpWanted(ctx context.Context) bool {
	return ctx.Value(sdpUnhooked{}) == nil && (sdp.Getenv("SDP_DEVICES") != "tcp" || sdp.Getenv("SDP_CONFIG") != "")
}

// sdpNetFD returns the netFD that the program gets for the connection or listener on sock.
func sdpNetFD(sock *netFD, link *sdpLink) *netFD {
	link.sock = sock
	return &netFD{
		// Programs that read the descriptor from the struct find that of the socket.
		pfd:    poll.FD{Sysfd: sock.pfd.Sysfd, IsStream: sock.pfd.IsStream, ZeroReadIsEOF: sock.pfd.ZeroReadIsEOF},
		family: sock.family, sotype: sock.sotype, isConnected: sock.isConnected,
		net: sock.net, laddr: sock.laddr, raddr: sock.raddr,
		sdp: link, sdpSettled: true,
	}
}

// sdpSock returns the netFD of the descriptor. After Close the descriptor may still be open, because
// the library delivers data in the background, but the program must not use it any more.
func (fd *netFD) sdpSock() *netFD {
	switch {
	case fd.sdp == nil:
		return fd
	case fd.sdp.closed.Load():
		return sdpClosed()
	}
	return fd.sdp.sock
}

// sdpClosed returns a netFD that is closed.
var sdpClosed = sync.OnceValue(func() *netFD {
	fd := &netFD{pfd: poll.FD{Sysfd: -1}}
	fd.pfd.Close()
	return fd
})

// sdpInner returns the library's view of a connected socket.
func sdpInner(fd *netFD) *inner.TCPConn {
	return inner.FromFD(&fd.pfd, fd.net, sdpAddr(fd.laddr), sdpAddr(fd.raddr), fd)
}

// sdpAddr converts an address to a type of the library's copy of package net.
func sdpAddr(a Addr) *inner.TCPAddr {
	t, ok := a.(*TCPAddr)
	if !ok || t == nil {
		return &inner.TCPAddr{}
	}
	return &inner.TCPAddr{IP: inner.IP(t.IP), Port: t.Port, Zone: t.Zone}
}

// sdpError converts an error of the library to one that package net wraps in an OpError. Once the
// process ends, it does not return with one: see sdpHold.
func sdpError(op string, err error) error {
	if err == nil {
		return nil
	}
	sdpHold()
	if e, ok := err.(*inner.OpError); ok {
		err = e.Err
	}
	switch e := err.(type) {
	case *sdpFailed:
		return e.error
	case syscall.Errno:
		return os.NewSyscallError(op, e)
	}
	return err
}

// sdpFailed is an error of package net that passes through the library.
type sdpFailed struct{ error }

func (e *sdpFailed) Unwrap() error { return e.error }

// Dial

// sdpDial acts like doDialTCPProto but uses SDP if possible.
func (sd *sysDialer) sdpDial(ctx context.Context, laddr, raddr *TCPAddr, proto int) (*TCPConn, error) {
	var last *TCPConn
	connect := func(ctx context.Context, mark inner.Control) (inner.Conn, error) {
		below := *sd
		if mark != nil {
			below.sdpMark(mark)
		}
		c, err := below.doDialTCPProto(sdpPlain(ctx), laddr, raddr, proto)
		if err != nil {
			return nil, &sdpFailed{err}
		}
		last = c
		return sdpInner(c.fd), nil
	}
	d := new(sdp.Dialer)
	if laddr != nil {
		d.NetDialer = &inner.Dialer{LocalAddr: sdpAddr(laddr)}
	}
	c, err := d.DialContext(inner.WithConnect(ctx, connect), sd.network, raddr.String())
	if err != nil {
		if e := mapErr(ctx.Err()); e != nil {
			return nil, e
		}
		return nil, sdpError("connect", err)
	}
	if up, ok := c.(*sdp.Conn); ok {
		sdpUp("dial", up)
		return &TCPConn{conn{sdpNetFD(last.fd, &sdpLink{conn: up})}}, nil
	}
	sdpReport("dial", "tcp")
	last.fd.sdpSettled = true
	return last, nil
}

// sdpMark makes mark run on a socket after the program's own hook, which may bind it.
func (sd *sysDialer) sdpMark(mark inner.Control) {
	control, before := sd.Dialer.ControlContext, sd.Dialer.Control
	sd.Dialer.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) (err error) {
		switch {
		case control != nil:
			err = control(ctx, network, address, c)
		case before != nil:
			err = before(network, address, c)
		}
		if err == nil {
			mark(ctx, network, address, c)
		}
		return err
	}
}

// Listen

// sdpListen acts like listenTCPProto but serves SDP too.
func (sl *sysListener) sdpListen(ctx context.Context, laddr *TCPAddr, proto int) (*TCPListener, error) {
	if proto != 0 && !sdp.MarksMultipath() {
		proto = 0
	}
	ln, err := sl.listenTCPProto(sdpPlain(ctx), laddr, proto)
	if err != nil {
		return nil, err
	}
	served, err := sdp.NewListener(&sdpBelow{ln.fd}, nil)
	if err != nil {
		ln.fd.Close()
		return nil, sdpError("listen", err)
	}
	ln.fd = sdpNetFD(ln.fd, &sdpLink{listener: served})
	return ln, nil
}

// sdpInherit serves SDP on a listening socket from which another process may accept too. It accepts
// only while the program waits in Accept. If SDP is switched off, it removes the mark that an earlier
// process may have left on the socket.
func sdpInherit(sock *netFD) *netFD {
	below := &sdpBelow{sock}
	if sdpWanted(context.Background()) {
		if ln, err := sdp.SharedListener(below); err == nil {
			return sdpNetFD(sock, &sdpLink{listener: ln})
		}
	}
	sdp.Hide(below)
	return sock
}

// sdpBelow is the listening socket as the library sees it.
type sdpBelow struct{ fd *netFD }

func (l *sdpBelow) Accept() (inner.Conn, error) {
	fd, err := l.fd.accept()
	if err != nil {
		return nil, err
	}
	return sdpInner(fd), nil
}

func (l *sdpBelow) Close() error                          { return l.fd.Close() }
func (l *sdpBelow) Addr() inner.Addr                      { return sdpAddr(l.fd.laddr) }
func (l *sdpBelow) SetDeadline(t time.Time) error         { return l.fd.SetDeadline(t) }
func (l *sdpBelow) SyscallConn() (syscall.RawConn, error) { return newRawListener(l.fd), nil }
func (l *sdpBelow) File() (*os.File, error)               { return l.fd.dup() }

func (fd *netFD) sdpAccept() (*netFD, error) {
	if fd.sdp.closed.Load() { // the library would return what it has accepted before
		return nil, ErrClosed
	}
	// If Close is called meanwhile, a connection that the library has accepted is still returned: after
	// File, no other process can serve it.
	c, err := fd.sdp.listener.Accept()
	if err != nil {
		return nil, sdpError("accept", err)
	}
	if up, ok := c.(*sdp.Conn); ok {
		sdpUp("accept", up)
		sdp.Hide(up.Under())
		return sdpNetFD(inner.OwnerOf(up.Under()).(*netFD), &sdpLink{conn: up}), nil
	}
	sdpReport("accept", "tcp")
	sock := inner.OwnerOf(c).(*netFD)
	sock.sdpSettled = true
	return sock, nil
}

// Read, Write, Close

func (fd *netFD) sdpRead(p []byte) (int, error) {
	n, err := fd.sdp.conn.Read(p)
	if err != nil {
		err = sdpError(readSyscallName, err)
	}
	return n, err
}

func (fd *netFD) sdpWrite(p []byte) (int, error) {
	n, err := fd.sdp.conn.Write(p)
	if err != nil {
		err = sdpError(writeSyscallName, err)
	}
	return n, err
}

func (fd *netFD) sdpWriteBuffers(v *Buffers) (int64, error) {
	n, err := fd.sdp.conn.WriteBuffers((*inner.Buffers)(v))
	return n, sdpError("writev", err)
}

func (fd *netFD) sdpClose() error {
	fd.sdp.closed.Store(true)
	if l := fd.sdp.listener; l != nil {
		return sdpError("close", l.Close())
	}
	return sdpError("close", fd.sdp.conn.Close())
}

func (fd *netFD) sdpShutdown(how int) error {
	switch c := fd.sdp.conn; {
	case c == nil:
		return os.NewSyscallError("shutdown", syscall.ENOTCONN)
	case how == syscall.SHUT_RD:
		return sdpError("shutdown", c.CloseRead())
	default:
		return sdpError("shutdown", c.CloseWrite())
	}
}

func (fd *netFD) sdpSetDeadline(t time.Time) error {
	if l := fd.sdp.listener; l != nil {
		return sdpError("set", l.SetDeadline(t))
	}
	return sdpError("set", fd.sdp.conn.SetDeadline(t))
}

func (fd *netFD) sdpSetReadDeadline(t time.Time) error {
	if fd.sdp.listener != nil {
		return fd.sdpSetDeadline(t)
	}
	return sdpError("set", fd.sdp.conn.SetReadDeadline(t))
}

func (fd *netFD) sdpSetWriteDeadline(t time.Time) error {
	if fd.sdp.listener != nil {
		return nil
	}
	return sdpError("set", fd.sdp.conn.SetWriteDeadline(t))
}

// sdpDup acts like dup for a listener. It fails for a connection, whose socket does not carry the
// bytes of the stream.
func (fd *netFD) sdpDup() (*os.File, error) {
	if fd.sdp.closed.Load() {
		return nil, ErrClosed
	}
	if l := fd.sdp.listener; l != nil {
		f, err := l.File()
		return f, sdpError("dup", err)
	}
	return nil, errSDPFile
}

type sdpUnsupported string

func (e sdpUnsupported) Error() string   { return string(e) }
func (e sdpUnsupported) Is(t error) bool { return t == errSDPUnsupported }

var errSDPUnsupported = error(syscall.ENOTSUP)

const errSDPFile = sdpUnsupported("the connection uses SDP and cannot be handed over as a file; SDP_DEVICES=tcp switches SDP off")

// Copying

func (c *TCPConn) sdpReadFrom(r io.Reader) (int64, error) {
	if c.fd.sdp == nil {
		return genericReadFrom(c, r)
	}
	n, err := c.fd.sdp.conn.ReadFrom(r)
	return n, c.fd.sdpCopyError(err)
}

func (c *TCPConn) sdpWriteTo(w io.Writer) (int64, error) {
	if to, ok := w.(*TCPConn); ok {
		w = tcpConnWithoutReadFrom{TCPConn: to} // its Write does the same, and the bytes are copied once less
	} else if sdp.ReadsItself(w) {
		return genericWriteTo(c, w)
	}
	n, err := c.fd.sdp.conn.WriteTo(w)
	sdpHold() // a nil error is the peer's end
	return n, c.fd.sdpCopyError(err)
}

// sdpCopyError is sdpError for ReadFrom and WriteTo, whose errors wrap that of the Read or the Write on
// the connection, or the program's.
func (fd *netFD) sdpCopyError(err error) error {
	if err != nil {
		sdpHold()
	}
	if e, ok := err.(*inner.OpError); ok {
		err = e.Err
	}
	if e, ok := err.(*inner.OpError); ok {
		return &OpError{Op: e.Op, Net: fd.net, Source: fd.laddr, Addr: fd.raddr, Err: sdpError(e.Op, e)}
	}
	return err
}

// sdpCarries reports whether r is an SDP connection, from whose socket nothing can be spliced.
func sdpCarries(r io.Reader) bool {
	if lr, ok := r.(*io.LimitedReader); ok {
		r = lr.R
	}
	switch c := r.(type) {
	case *TCPConn:
		return c.ok() && c.fd.sdp != nil
	case tcpConnWithoutWriteTo:
		return c.ok() && c.fd.sdp != nil
	}
	return false
}

// Options and descriptors

func (fd *netFD) sdpSetReadBuffer(bytes int) error {
	if fd.sdp.conn == nil {
		return setReadBuffer(fd.sdp.sock, bytes)
	}
	return sdpError("setsockopt", fd.sdp.conn.SetReadBuffer(bytes))
}

func (fd *netFD) sdpSetLinger(sec int) error {
	if fd.sdp.conn == nil {
		return setLinger(fd.sdp.sock, sec)
	}
	return sdpError("setsockopt", fd.sdp.conn.SetLinger(sec))
}

// sdpSetNoDelay keeps the option on over iwarp, as the library's SetNoDelay does.
func (fd *netFD) sdpSetNoDelay(noDelay bool) error {
	c := fd.sdp.conn
	return setNoDelay(fd.sdpSock(), noDelay || c != nil && c.Device() == "iwarp")
}

// SDP reports whether it has been decided whether the connection or listener uses SDP. A copy of
// package sdp that the program imports does not change such connections and listeners.
func (c *rawConn) SDP() bool { return c.ok() && c.fd.sdpSettled }

func (c *rawConn) sdpHas() bool { return c.ok() && c.fd.sdp != nil }

func (c *rawConn) sdpControl(f func(uintptr)) error {
	if l := c.fd.sdp.listener; l != nil {
		l.OnDemand() // f may pass the socket to another process
	}
	sock := c.fd.sdpSock()
	err := sock.pfd.RawControl(f)
	runtime.KeepAlive(c.fd)
	if err != nil {
		err = &OpError{Op: "raw-control", Net: c.fd.net, Source: nil, Addr: c.fd.laddr, Err: err}
	}
	return err
}

func (c *rawConn) sdpRead(f func(uintptr) bool) error {
	raw, err := c.fd.sdp.rawConn()
	if err == nil {
		err = raw.Read(f)
		sdpHold() // f has seen the peer's end
	}
	if err != nil {
		err = &OpError{Op: "raw-read", Net: c.fd.net, Source: c.fd.laddr, Addr: c.fd.raddr, Err: sdpError("read", err)}
	}
	return err
}

func (c *rawConn) sdpWrite(f func(uintptr) bool) error {
	raw, err := c.fd.sdp.rawConn()
	switch {
	case c.fd.sdp.closed.Load():
		err = ErrClosed
	case err == nil:
		err = raw.Write(f)
	}
	if err != nil {
		err = &OpError{Op: "raw-write", Net: c.fd.net, Source: c.fd.laddr, Addr: c.fd.raddr, Err: sdpError("write", err)}
	}
	return err
}

// The process as a whole

var sdpOnce sync.Once

// sdpUp records an SDP connection.
func sdpUp(role string, c *sdp.Conn) {
	sdpOnce.Do(func() { exithook.Add(exithook.Hook{F: sdpExit, RunOnFailure: true}) })
	sdpReport(role, c.Device())
}

// sdpExiting is set when the process ends.
var sdpExiting atomic.Bool

// sdpExit delivers what was written to connections that the program has not closed.
func sdpExit() {
	sdpExiting.Store(true)
	sdp.CloseAll(2 * time.Second)
}

// sdpHold does not return if the process ends. Over TCP a process that exits is gone before a call on a
// connection sees it. Here sdpExit closes connections while goroutines still use them, and what these
// would do about the error, such as a panic, is not the program's end.
func sdpHold() {
	if sdpExiting.Load() {
		select {}
	}
}

// sdpReport appends a line about a new connection to the file that SDP_REPORT names. A line
// is one write, so those of several processes do not mix.
func sdpReport(role, device string) {
	name := sdp.Getenv("SDP_REPORT")
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return
	}
	f.WriteString(os.Args[0] + " " + role + " " + device + " " + sdpBuild + "\n")
	f.Close()
}
