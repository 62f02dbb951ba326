package net

import (
	"context"
	"internal/poll"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// backlog is limited further by the system's somaxconn.
const backlog = 4096

// UnixListener is a listener of the library's own.
type UnixListener struct {
	pfd    poll.FD
	addr   *UnixAddr
	unlink sync.Once
}

// ListenUnix listens on network "unix".
func ListenUnix(network string, addr *UnixAddr) (*UnixListener, error) {
	l, err := listenUnix(addr)
	if err != nil {
		return nil, &OpError{Op: "listen", Net: network, Addr: addr, Err: err}
	}
	return l, nil
}

func listenUnix(addr *UnixAddr) (*UnixListener, error) {
	s, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := syscall.Bind(s, &syscall.SockaddrUnix{Name: addr.Name}); err != nil {
		syscall.Close(s)
		return nil, os.NewSyscallError("bind", err)
	}
	if err := syscall.Listen(s, backlog); err != nil {
		syscall.Close(s)
		return nil, os.NewSyscallError("listen", err)
	}
	l := &UnixListener{pfd: poll.FD{Sysfd: s, IsStream: true, ZeroReadIsEOF: true}, addr: addr}
	if err := l.pfd.Init("unix", true); err != nil {
		syscall.Close(s)
		return nil, err
	}
	runtime.SetFinalizer(l, func(l *UnixListener) { l.pfd.Close() })
	return l, nil
}

// AcceptUnix returns the next connection.
func (l *UnixListener) AcceptUnix() (*UnixConn, error) {
	c, err := l.accept()
	if err != nil {
		return nil, &OpError{Op: "accept", Net: "unix", Addr: l.addr, Err: err}
	}
	return c, nil
}

func (l *UnixListener) accept() (*UnixConn, error) {
	s, _, call, err := l.pfd.Accept()
	runtime.KeepAlive(l)
	if err != nil {
		if errno, ok := err.(syscall.Errno); ok {
			err = os.NewSyscallError(call, errno)
		}
		return nil, err
	}
	c := UnixFromFD(&poll.FD{Sysfd: s, IsStream: true, ZeroReadIsEOF: true}, "unix", nil)
	if err := c.pfd.Init("unix", true); err != nil {
		syscall.Close(s)
		return nil, err
	}
	runtime.SetFinalizer(c, (*UnixConn).Close)
	return c, nil
}

// Close closes the socket and removes its file.
func (l *UnixListener) Close() error {
	l.unlink.Do(func() {
		if l.addr.Name != "" && l.addr.Name[0] != '@' && l.addr.Name[0] != 0 {
			syscall.Unlink(l.addr.Name)
		}
	})
	if err := l.pfd.Close(); err != nil {
		return &OpError{Op: "close", Net: "unix", Addr: l.addr, Err: err}
	}
	return nil
}

// Accept is not used here.
func (l *UnixListener) Accept() (Conn, error) { return nil, errNotHere }

// Addr returns the address that was passed to ListenUnix.
func (l *UnixListener) Addr() Addr { return l.addr }

// SetDeadline sets the deadline of AcceptUnix.
func (l *UnixListener) SetDeadline(t time.Time) error { return l.pfd.SetDeadline(t) }

// TCPListener is a listener of package net.
type TCPListener struct{ Below }

// Below is what package net has of a TCPListener.
type Below interface {
	Listener
	SetDeadline(t time.Time) error
	SyscallConn() (syscall.RawConn, error)
	File() (*os.File, error)
}

// ListenConfig is not used here, because package net listens.
type ListenConfig struct{}

func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (Listener, error) {
	return nil, errNotHere
}

// FileListener and FileConn are not used here, because package net has them.

func FileListener(f *os.File) (Listener, error) { return nil, errNotHere }
func FileConn(f *os.File) (Conn, error)         { return nil, errNotHere }
