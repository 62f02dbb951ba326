package net

import (
	"context"
	"internal/poll"
	"os"
	"runtime"
	"syscall"
	"time"
)

type connectKey struct{}

type connectFunc = func(context.Context) (Conn, error)

// WithConnect returns a context in which Dialers on networks of TCP make no connections
// themselves but call connect.
func WithConnect(ctx context.Context, connect func(context.Context) (Conn, error)) context.Context {
	return context.WithValue(ctx, connectKey{}, connectFunc(connect))
}

// Dialer has the fields of package net's that the library uses.
type Dialer struct {
	Timeout  time.Duration
	Deadline time.Time
	Cancel   <-chan struct{}

	LocalAddr      Addr
	Control        func(network, address string, c syscall.RawConn) error
	ControlContext func(ctx context.Context, network, address string, c syscall.RawConn) error
}

// DialContext connects to a Unix socket, or to the address that WithConnect is about.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (Conn, error) {
	switch network {
	case "tcp", "tcp4", "tcp6":
		if connect, ok := ctx.Value(connectKey{}).(connectFunc); ok {
			return connect(ctx)
		}
	case "unix":
		c, err := d.dialUnix(ctx, address)
		if err != nil {
			return nil, &OpError{Op: "dial", Net: network, Addr: &UnixAddr{Name: address, Net: network}, Err: err}
		}
		return c, nil
	}
	return nil, &OpError{Op: "dial", Net: network, Err: errNotHere}
}

func (d *Dialer) dialUnix(ctx context.Context, address string) (*UnixConn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	c := newUnixConn(s, "unix", syscall.SOCK_STREAM)
	if d.ControlContext != nil {
		if err := d.ControlContext(ctx, "unix", address, &rawConn{&c.conn}); err != nil {
			syscall.Close(s)
			return nil, err
		}
	}
	// A Unix socket connects at once, or not at all.
	err = ignoringEINTR(func() error { return syscall.Connect(s, &syscall.SockaddrUnix{Name: address}) })
	if err != nil {
		syscall.Close(s)
		return nil, os.NewSyscallError("connect", err)
	}
	return c, c.init(s)
}

// newUnixConn returns a connection on a socket, which must then be closed or passed to init.
func newUnixConn(s int, network string, kind int) *UnixConn {
	pfd := &poll.FD{Sysfd: s, IsStream: kind == syscall.SOCK_STREAM, ZeroReadIsEOF: true}
	return &UnixConn{conn{pfd: pfd, net: network, local: &UnixAddr{Net: network}, remote: &UnixAddr{Net: network}}}
}

// init makes the connection usable, or closes its socket.
func (c *UnixConn) init(s int) error {
	if err := c.pfd.Init(c.net, true); err != nil {
		syscall.Close(s)
		return err
	}
	runtime.SetFinalizer(c, (*UnixConn).Close)
	if sa, err := syscall.Getsockname(s); err == nil {
		c.local = unixAddr(sa, c.net)
	}
	if sa, err := syscall.Getpeername(s); err == nil {
		c.remote = unixAddr(sa, c.net)
	}
	return nil
}

func ignoringEINTR(f func() error) error {
	for {
		if err := f(); err != syscall.EINTR {
			return err
		}
	}
}
