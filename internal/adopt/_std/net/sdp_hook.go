//go:build linux && !android && (amd64 || arm64)

// This file is not part of the Go distribution. "sdp go" has added it to package net, and a line
// to each function that calls it, so that TCP connections between programs of one host move to
// shared memory when that pays. See docs/adoption.md of github.com/gosdp/gosdp.

package net

import (
	"context"
	inner "internal/gosdp/net"
	"internal/gosdp/sdp"
	"internal/poll"
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

// sdpLink is the additional state of a netFD whose connection or listener is the library's. The
// socket's descriptor belongs to another netFD, sock. The library refers only to that one, so the
// garbage collector frees a connection that the program has dropped.
type sdpLink struct {
	conn   *sdp.Conn   // nil: a listener
	serves sdpListener // use listener
	sock   *netFD
	closed atomic.Bool
	role   string      // for sdpReport
	moved  atomic.Bool // reported

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

// sdpWanted reports whether the connections of a Dial or Listen with ctx may be the library's.
func sdpWanted(ctx context.Context) bool { return ctx.Value(sdpUnhooked{}) == nil }

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

// sdpConn makes a connection the program's. up is nil if it stays package net's own, and why says why it does.
func (c *TCPConn) sdpConn(up *sdp.Conn, why, role string) *TCPConn {
	if up == nil {
		c.fd.sdpSettled = true
		sdpReport(role, "tcp", why)
		return c
	}
	sdpReport(role, up.Device(), "")
	return &TCPConn{conn{sdpNetFD(c.fd, &sdpLink{conn: up, role: role})}}
}

// sdpSock returns the netFD of the descriptor. After Close the descriptor may still be open, because
// SDP over RDMA delivers data in the background, but the program must not use it any more.
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

// sdpError converts an error of the library to one that package net wraps in an OpError.
func sdpError(op string, err error) error {
	if err == nil {
		return nil
	}
	sdpHold()
	if e, ok := err.(*inner.OpError); ok {
		err = e.Err
	}
	return sdpOuter(op, err)
}

// sdpOuter converts an error of the library to one of package net.
func sdpOuter(op string, err error) error {
	switch e := err.(type) {
	case *inner.OpError:
		return &OpError{Op: e.Op, Net: e.Net, Source: sdpOuterAddr(e.Source), Addr: sdpOuterAddr(e.Addr), Err: sdpOuter(e.Op, e.Err)}
	case *sdpFailed:
		return e.error
	case syscall.Errno:
		return os.NewSyscallError(op, e)
	}
	return err
}

// sdpOuterAddr is the inverse of sdpAddr.
func sdpOuterAddr(a inner.Addr) Addr {
	if t, ok := a.(*inner.TCPAddr); ok && t != nil {
		return &TCPAddr{IP: IP(t.IP), Port: t.Port, Zone: t.Zone}
	}
	return nil
}

// sdpFailed is an error of package net that passes through the library.
type sdpFailed struct{ error }

func (e *sdpFailed) Unwrap() error { return e.error }

// Dial, Listen, Accept, and what other processes hand over

// sdpDial acts like doDialTCPProto.
func (sd *sysDialer) sdpDial(ctx context.Context, laddr, raddr *TCPAddr, proto int) (*TCPConn, error) {
	rdma, err := sdp.Dials(sd.network, sdpAddr(raddr))
	if err != nil {
		return nil, err
	}
	if sdpRDMA && rdma {
		return sd.sdpDialRDMA(ctx, laddr, raddr, proto)
	}
	c, err := sd.doDialTCPProto(sdpPlain(ctx), laddr, raddr, proto)
	if err != nil {
		return nil, err
	}
	up, why, err := sdp.Dialled(ctx, sd.network, sdpInner(c.fd))
	if err != nil {
		c.Close()
		if e := mapErr(ctx.Err()); e != nil {
			return nil, e
		}
		return nil, sdpError("connect", err)
	}
	return c.sdpConn(up, why, "dial"), nil
}

// sdpListen acts like listenTCPProto.
func (sl *sysListener) sdpListen(ctx context.Context, laddr *TCPAddr, proto int) (*TCPListener, error) {
	ln, err := sl.listenTCPProto(sdpPlain(ctx), laddr, proto)
	if err != nil {
		return nil, err
	}
	sock := ln.fd
	if ln.fd, err = sdpServe(sock); err != nil {
		sock.Close()
		return nil, sdpError("listen", err)
	}
	return ln, nil
}

// sdpInherit returns the listener on a listening socket that the program has as a file.
func sdpInherit(sock *netFD) (Listener, error) {
	fd, err := sdpServe(sock)
	if err != nil {
		sock.Close()
		return nil, sdpError("listen", err)
	}
	return &TCPListener{fd: fd}, nil
}

// sdpServe returns the netFD that a program gets for a listening socket.
func sdpServe(sock *netFD) (*netFD, error) {
	sock.sdpSettled = true
	rdma, err := sdp.Listens(sdpAddr(sock.laddr), sdpRDMA)
	if sdpRDMA && rdma {
		return sock.sdpServeRDMA()
	}
	return sock, err
}

// sdpAccepted returns what a program gets of a connection that it has accepted.
func (ln *TCPListener) sdpAccepted(c *TCPConn) *TCPConn {
	if !ln.fd.sdpSettled || c.fd.sdpSettled {
		return c
	}
	up, why := sdp.Accepted(sdpInner(c.fd), sdpAddr(ln.fd.laddr))
	return c.sdpConn(up, why, "accept")
}

// sdpContinued returns what a program gets of a connection that it has as a file.
func sdpContinued(c *TCPConn) *TCPConn {
	up, why := sdp.Continued(sdpInner(c.fd))
	return c.sdpConn(up, why, "file")
}

// Read, Write, Close

func (fd *netFD) sdpRead(p []byte) (int, error) {
	n, err := fd.sdp.conn.Read(p)
	fd.sdp.report()
	if err != nil {
		err = sdpError(readSyscallName, err)
	}
	return n, err
}

func (fd *netFD) sdpWrite(p []byte) (int, error) {
	n, err := fd.sdp.conn.Write(p)
	fd.sdp.report()
	if err != nil {
		err = sdpError(writeSyscallName, err)
	}
	return n, err
}

func (fd *netFD) sdpWriteBuffers(v *Buffers) (int64, error) {
	n, err := fd.sdp.conn.WriteBuffers((*inner.Buffers)(v))
	fd.sdp.report()
	return n, sdpError("writev", err)
}

func (fd *netFD) sdpClose() error {
	again := fd.sdp.closed.Swap(true)
	if l := fd.sdp.listener(); l != nil {
		return sdpError("close", l.Close())
	}
	err := sdpError("close", fd.sdp.conn.Close())
	if !again && sdpReports() {
		if why := fd.sdp.conn.Stayed(); why != "" {
			sdpReport(fd.sdp.role, "stayed", why)
		}
	}
	return err
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
	if l := fd.sdp.listener(); l != nil {
		return sdpError("set", l.SetDeadline(t))
	}
	return sdpError("set", fd.sdp.conn.SetDeadline(t))
}

func (fd *netFD) sdpSetReadDeadline(t time.Time) error {
	if fd.sdp.listener() != nil {
		return fd.sdpSetDeadline(t)
	}
	return sdpError("set", fd.sdp.conn.SetReadDeadline(t))
}

func (fd *netFD) sdpSetWriteDeadline(t time.Time) error {
	if fd.sdp.listener() != nil {
		return nil
	}
	return sdpError("set", fd.sdp.conn.SetWriteDeadline(t))
}

// sdpDup acts like dup. A connection comes home to its socket first.
func (fd *netFD) sdpDup() (f *os.File, err error) {
	switch {
	case fd.sdp.closed.Load():
		return nil, ErrClosed
	case fd.sdp.listener() != nil:
		f, err = fd.sdp.listener().File()
	default:
		f, err = fd.sdp.conn.File()
	}
	return f, sdpError("dup", err)
}

// What the library uses of a socket's netFD, which is an inner.Owner:

func (fd *netFD) SDPFile() (*os.File, error) { return fd.dup() }
func (fd *netFD) SDPMultipath() bool         { return isUsingMultipathTCP(fd) }
func (fd *netFD) SDPReadFrom(r io.LimitedReader) (int64, error) {
	switch of := inner.OwnerOf(r.R).(type) {
	case nil:
	case *netFD:
		if of.family == syscall.AF_UNIX {
			r.R = &UnixConn{conn{of}}
		} else {
			r.R = &TCPConn{conn{of}}
		}
	}
	return (&TCPConn{conn{fd}}).readFrom(&r)
}

// Copying

func (c *TCPConn) sdpReadFrom(r io.Reader) (int64, error) {
	if c.fd.sdp == nil {
		return genericReadFrom(c, r)
	}
	limit, ok := r.(*io.LimitedReader)
	if !ok {
		n, err := c.fd.sdp.conn.ReadFrom(sdpSource(r))
		return n, c.fd.sdpCopyError(err)
	}
	part := io.LimitedReader{R: sdpSource(limit.R), N: limit.N}
	n, err := c.fd.sdp.conn.ReadFrom(&part)
	limit.N = part.N
	return n, c.fd.sdpCopyError(err)
}

// sdpSource returns a reader as the library knows it, if the kernel can send from it.
func sdpSource(r io.Reader) io.Reader {
	switch c := r.(type) {
	case *TCPConn:
		if c.ok() && c.fd.sdp == nil {
			return sdpInner(c.fd)
		}
	case tcpConnWithoutWriteTo:
		return sdpSource(c.TCPConn)
	case *UnixConn:
		if c.ok() {
			return inner.UnixFromFD(&c.fd.pfd, c.fd.net, c.fd)
		}
	}
	return r
}

func (c *TCPConn) sdpWriteTo(w io.Writer) (int64, error) {
	switch to := w.(type) {
	case *os.File:
	case *TCPConn:
		w = tcpConnWithoutReadFrom{TCPConn: to} // its Write does the same, and the bytes are copied once less
	case io.ReaderFrom:
		if w != io.Discard {
			return genericWriteTo(c, w) // which passes it a connection of this package
		}
	}
	n, err := c.fd.sdp.conn.WriteTo(w)
	sdpHold() // a nil error is the peer's end
	return n, c.fd.sdpCopyError(err)
}

// sdpCopyError is sdpError for ReadFrom and WriteTo, whose errors wrap that of the Read or the Write on
// a connection, or the program's.
func (fd *netFD) sdpCopyError(err error) error {
	fd.sdp.report()
	if err == nil || err == io.EOF {
		return err
	}
	return sdpError("write", err)
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

// Options and descriptors. The options are the socket's, except some that SDP over RDMA has too.

func (fd *netFD) sdpSetReadBuffer(bytes int) error {
	if c := fd.sdp.rdma(); c != nil {
		return sdpError("setsockopt", c.SetReadBuffer(bytes))
	}
	return setReadBuffer(fd.sdpSock(), bytes)
}

func (fd *netFD) sdpSetLinger(sec int) error {
	if c := fd.sdp.rdma(); c != nil {
		return sdpError("setsockopt", c.SetLinger(sec))
	}
	return setLinger(fd.sdpSock(), sec)
}

func (fd *netFD) sdpSetNoDelay(noDelay bool) error {
	if c := fd.sdp.rdma(); c != nil {
		return sdpError("setsockopt", c.SetNoDelay(noDelay))
	}
	return setNoDelay(fd.sdpSock(), noDelay)
}

// SDP reports whether it has been decided whether the connection or listener uses SDP. A copy of
// package sdp that the program imports does not change such connections and listeners.
func (c *rawConn) SDP() bool { return c.ok() && c.fd.sdpSettled }

func (c *rawConn) sdpHas() bool { return c.ok() && c.fd.sdp != nil }

// sdpControl passes the descriptor of the socket. After that a connection's bytes arrive there.
func (c *rawConn) sdpControl(f func(uintptr)) (err error) {
	if c.fd.sdp.conn == nil || c.fd.sdp.closed.Load() {
		err = c.fd.sdpSock().pfd.RawControl(f)
		runtime.KeepAlive(c.fd)
	} else {
		var raw syscall.RawConn
		if raw, err = c.fd.sdp.rawConn(); err == nil {
			err = raw.Control(f)
		}
	}
	if err != nil {
		err = &OpError{Op: "raw-control", Net: c.fd.net, Source: nil, Addr: c.fd.laddr, Err: sdpError("control", err)}
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

// sdpReports says that the program reports its connections.
var sdpReports = sync.OnceValue(func() bool { return sdp.Getenv("SDP_REPORT") != "" })

// report reports that a connection has moved to shared memory, once.
func (l *sdpLink) report() {
	if !sdpReports() || l.moved.Load() {
		return
	}
	if s := l.conn.Stats(); s.ShmSent+s.ShmReceived > 0 && !l.moved.Swap(true) {
		sdpReport(l.role, "shm", "")
	}
}

// sdpReport appends a line about a connection to the file that SDP_REPORT names, with why it is on TCP if that is
// known. A line is one write, so those of several processes do not mix.
func sdpReport(role, device, why string) {
	if !sdpReports() {
		return
	}
	f, err := os.OpenFile(sdp.Getenv("SDP_REPORT"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return
	}
	line := os.Args[0] + " " + role + " " + device + " " + sdpBuild
	if why != "" {
		line += ": " + why
	}
	f.WriteString(line + "\n")
	f.Close()
}
