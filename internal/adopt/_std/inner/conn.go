package net

import (
	"internal/poll"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"
)

// Owner is what package net has for a socket: a *netFD.
type Owner interface {
	// SDPFile returns a copy of the socket.
	SDPFile() (*os.File, error)
	// SDPReadFrom sends what r has, by the kernel if it can.
	SDPReadFrom(r io.LimitedReader) (int64, error)
	// SDPMultipath reports whether the connection uses multipath TCP.
	SDPMultipath() bool
}

// FromFD returns a connection on a socket of package net.
func FromFD(pfd *poll.FD, network string, local, remote *TCPAddr, owner Owner) *TCPConn {
	return &TCPConn{conn{pfd: pfd, net: network, local: local, remote: remote, owner: owner}}
}

// UnixFromFD is FromFD for a Unix socket, from which the kernel can send.
func UnixFromFD(pfd *poll.FD, network string, owner Owner) *UnixConn {
	return &UnixConn{conn{pfd: pfd, net: network, local: &UnixAddr{Net: network}, remote: &UnixAddr{Net: network}, owner: owner}}
}

// OwnerOf returns the owner of a connection that FromFD or UnixFromFD has returned, and nil for
// anything else.
func OwnerOf(c any) Owner {
	switch c := c.(type) {
	case *TCPConn:
		return c.owner
	case *UnixConn:
		return c.owner
	}
	return nil
}

// conn is a connected socket.
type conn struct {
	pfd           *poll.FD
	net           string
	local, remote Addr
	owner         Owner // of pfd; nil: a Unix socket of the library's own
}

// TCPConn is a TCP connection of package net.
type TCPConn struct{ conn }

// UnixConn is a connection of the library's own.
type UnixConn struct{ conn }

func (c *conn) fail(op, call string, err error) error {
	switch e := err.(type) {
	case nil:
		return nil
	case syscall.Errno:
		err = os.NewSyscallError(call, e)
	}
	if err == io.EOF {
		return err
	}
	return &OpError{Op: op, Net: c.net, Source: c.local, Addr: c.remote, Err: err}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.pfd.Read(b)
	runtime.KeepAlive(c)
	return n, c.fail("read", "read", err)
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.pfd.Write(b)
	runtime.KeepAlive(c)
	return n, c.fail("write", "write", err)
}

func (c *conn) Close() error { return c.fail("close", "close", c.pfd.Close()) }

func (c *conn) CloseRead() error { return c.shutdown(syscall.SHUT_RD) }

func (c *conn) CloseWrite() error { return c.shutdown(syscall.SHUT_WR) }

func (c *conn) shutdown(how int) error {
	err := c.pfd.Shutdown(how)
	runtime.KeepAlive(c)
	return c.fail("close", "shutdown", err)
}

func (c *conn) LocalAddr() Addr  { return c.local }
func (c *conn) RemoteAddr() Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error     { return c.fail("set", "", c.pfd.SetDeadline(t)) }
func (c *conn) SetReadDeadline(t time.Time) error { return c.fail("set", "", c.pfd.SetReadDeadline(t)) }
func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.fail("set", "", c.pfd.SetWriteDeadline(t))
}

func (c *conn) SetReadBuffer(bytes int) error {
	return c.option(syscall.SOL_SOCKET, syscall.SO_RCVBUF, bytes)
}

func (c *conn) SetWriteBuffer(bytes int) error {
	return c.option(syscall.SOL_SOCKET, syscall.SO_SNDBUF, bytes)
}

func (c *conn) option(level, name, value int) error {
	err := c.pfd.SetsockoptInt(level, name, value)
	runtime.KeepAlive(c)
	return c.fail("set", "setsockopt", err)
}

// ReadFrom sends what r has, which is an *io.LimitedReader. Its errors are not *OpErrors.
func (c *TCPConn) ReadFrom(r io.Reader) (int64, error) {
	return c.owner.SDPReadFrom(*r.(*io.LimitedReader))
}

// WriteTo writes all slices with as few system calls as possible.
func (v *Buffers) WriteTo(w io.Writer) (int64, error) {
	c := w.(*TCPConn)
	n, err := c.pfd.Writev((*[][]byte)(v))
	runtime.KeepAlive(c)
	return n, c.fail("writev", "writev", err)
}

// File returns a copy of the socket.
func (c *TCPConn) File() (*os.File, error) {
	f, err := c.owner.SDPFile()
	return f, c.fail("file", "", err)
}

// MultipathTCP acts like that of package net.
func (c *TCPConn) MultipathTCP() (bool, error) { return c.owner.SDPMultipath(), nil }

// The program sets these by package net.

func (c *TCPConn) SetKeepAlive(bool) error                  { return errNotHere }
func (c *TCPConn) SetKeepAlivePeriod(time.Duration) error   { return errNotHere }
func (c *TCPConn) SetKeepAliveConfig(KeepAliveConfig) error { return errNotHere }

// SetNoDelay acts like that of package net.
func (c *TCPConn) SetNoDelay(noDelay bool) error {
	value := 0
	if noDelay {
		value = 1
	}
	return c.option(syscall.IPPROTO_TCP, syscall.TCP_NODELAY, value)
}

// SetLinger acts like that of package net.
func (c *TCPConn) SetLinger(sec int) error {
	l := syscall.Linger{Onoff: 1, Linger: int32(sec)}
	if sec < 0 {
		l = syscall.Linger{}
	}
	err := c.pfd.SetsockoptLinger(syscall.SOL_SOCKET, syscall.SO_LINGER, &l)
	runtime.KeepAlive(c)
	return c.fail("set", "setsockopt", err)
}

// SyscallConn returns a raw connection on the socket.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return &rawConn{c}, nil }

type rawConn struct{ c *conn }

func (r *rawConn) Control(f func(uintptr)) error {
	err := r.c.pfd.RawControl(f)
	runtime.KeepAlive(r.c)
	return r.fail("raw-control", err)
}

func (r *rawConn) Read(f func(uintptr) bool) error {
	err := r.c.pfd.RawRead(f)
	runtime.KeepAlive(r.c)
	return r.fail("raw-read", err)
}

func (r *rawConn) Write(f func(uintptr) bool) error {
	err := r.c.pfd.RawWrite(f)
	runtime.KeepAlive(r.c)
	return r.fail("raw-write", err)
}

func (r *rawConn) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return &OpError{Op: op, Net: r.c.net, Source: r.c.local, Addr: r.c.remote, Err: err}
}
