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

// ListenUnix listens on network "unix" or "unixpacket".
func ListenUnix(network string, addr *UnixAddr) (*UnixListener, error) {
	l, err := listenUnix(network, addr)
	if err != nil {
		return nil, &OpError{Op: "listen", Net: network, Addr: addr, Err: err}
	}
	return l, nil
}

func listenUnix(network string, addr *UnixAddr) (*UnixListener, error) {
	kind := syscall.SOCK_STREAM
	if network == "unixpacket" {
		kind = syscall.SOCK_SEQPACKET
	}
	s, err := syscall.Socket(syscall.AF_UNIX, kind|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
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
	l := &UnixListener{pfd: poll.FD{Sysfd: s, IsStream: kind == syscall.SOCK_STREAM, ZeroReadIsEOF: true}, addr: addr}
	if err := l.pfd.Init(network, true); err != nil {
		syscall.Close(s)
		return nil, err
	}
	runtime.SetFinalizer(l, func(l *UnixListener) { l.pfd.Close() })
	return l, nil
}

// Accept returns the next connection.
func (l *UnixListener) Accept() (Conn, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptUnix returns the next connection.
func (l *UnixListener) AcceptUnix() (*UnixConn, error) {
	s, _, call, err := l.pfd.Accept()
	runtime.KeepAlive(l)
	if err != nil {
		if errno, ok := err.(syscall.Errno); ok {
			err = os.NewSyscallError(call, errno)
		}
		return nil, &OpError{Op: "accept", Net: l.addr.Net, Addr: l.addr, Err: err}
	}
	c := newUnixConn(s, l.addr.Net, syscall.SOCK_STREAM)
	if err := c.init(s); err != nil {
		return nil, &OpError{Op: "accept", Net: l.addr.Net, Addr: l.addr, Err: err}
	}
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
		return &OpError{Op: "close", Net: l.addr.Net, Addr: l.addr, Err: err}
	}
	return nil
}

// Addr returns the address that was passed to ListenUnix.
func (l *UnixListener) Addr() Addr { return l.addr }

// SetDeadline sets the deadline of Accept.
func (l *UnixListener) SetDeadline(t time.Time) error { return l.pfd.SetDeadline(t) }

// TCPListener is not used here, because package net listens.
type TCPListener struct{ Listener }

func (l *TCPListener) SyscallConn() (syscall.RawConn, error) { return nil, errNotHere }
func (l *TCPListener) File() (*os.File, error)               { return nil, errNotHere }

// ListenConfig is not used here, because package net listens.
type ListenConfig struct {
	Control         func(network, address string, c syscall.RawConn) error
	KeepAlive       time.Duration
	KeepAliveConfig KeepAliveConfig
}

func (lc *ListenConfig) MultipathTCP() bool   { return false }
func (lc *ListenConfig) SetMultipathTCP(bool) {}
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (Listener, error) {
	return nil, errNotHere
}

// FileListener and FileConn are not used here, because package net has them.

func FileListener(f *os.File) (Listener, error) { return nil, errNotHere }
func FileConn(f *os.File) (Conn, error)         { return nil, errNotHere }
