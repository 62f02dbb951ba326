package sdp

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/adopted"
	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/local"
	"github.com/gosdp/gosdp/internal/netname"
	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/internal/rules"
	"github.com/gosdp/gosdp/listener"
)

// Listen announces on the local network address. The network must be "tcp", "tcp4", "tcp6",
// "unix", "sdp", "sdp4" or "sdp6". On the first four the listener serves all clients, as
// [net.Listen]'s does. On the others it closes the connections of clients that it cannot meet in
// shared memory, and that do not agree on an RDMA device. Addresses and errors are those of
// net.Listen. Listen uses the default [Config].
func Listen(network, address string) (net.Listener, error) {
	return new(ListenConfig).Listen(context.Background(), network, address)
}

// ListenConfig contains options for listening. Its method is safe for concurrent use as long
// as its fields do not change.
type ListenConfig struct {
	// NetListenConfig makes the underlying listener. Nil means the zero ListenConfig.
	NetListenConfig *net.ListenConfig
	// Config has the options of SDP. Nil means the defaults.
	Config *Config
}

// Listen announces on the local network address, as the function [Listen] does, and returns a
// [*Listener]. It uses ctx to resolve the address.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	n, err := policy.ParseNetwork(network)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	n, known := lc.Config.options().Ruled(n, rules.Server, address)
	set, err := lc.Config.shared(n)
	if err != nil {
		return nil, n.OpError("listen", nil, nil, err)
	}
	var under net.ListenConfig
	if lc.NetListenConfig != nil {
		under = *lc.NetListenConfig
	}
	ln, err := under.Listen(adopted.Plain(ctx), n.TCP, address)
	if err != nil {
		return nil, n.OpError("listen", nil, nil, err)
	}
	if known {
		return newListener(n, ln, *set), nil
	}
	l, err := lc.Config.listener(n, ln)
	if err != nil {
		ln.Close()
		return nil, err
	}
	return l, nil
}

// listener returns a Listener that accepts connections from ln, under the rule for its address.
func (c *Config) listener(n policy.Network, ln net.Listener) (*Listener, error) {
	n = c.options().RuledAt(n, rules.Server, ln.Addr())
	set, err := c.shared(n)
	if err != nil {
		return nil, n.OpError("listen", nil, ln.Addr(), err)
	}
	return newListener(n, ln, *set), nil
}

// FileListener returns a listener on a copy of the listening socket f, as [net.FileListener]
// does. It uses the default [Config].
func FileListener(f *os.File) (net.Listener, error) {
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	l, err := NewListener(ln, nil)
	if err != nil {
		ln.Close()
		return nil, err
	}
	return l, nil
}

// FileConn returns a copy of the connection of the socket f, as [net.FileConn] does. It continues a
// connection on which another Conn, perhaps in another process, has called [Conn.File] and does nothing since. If
// its ends are on this host it is a [*Conn], which moves to shared memory if this end was accepted. FileConn uses the
// default [Config].
func FileConn(f *os.File) (net.Conn, error) {
	conn, err := net.FileConn(f)
	if err != nil || adopted.Settled(conn) {
		return conn, err
	}
	n := policy.TCP
	var defaults *Config
	set, err := defaults.settings(defaults.options().RuledAt(n, rules.Server, conn.LocalAddr()), false)
	if err != nil {
		conn.Close()
		return nil, n.OpError("file", conn.LocalAddr(), conn.RemoteAddr(), err)
	}
	if c := set.inherit(conn); c != nil {
		return c, nil
	}
	return conn, nil
}

// NewListener returns a Listener that accepts connections from ln, and serves the same clients as [Listen] on
// network "tcp". The Listener owns ln. config may be nil. NewListener fails only if the configuration is
// invalid. If ln is not a [*net.TCPListener], connections come out of Accept as they went in, except that a
// [*net.TCPConn] between two ends on this host becomes a [*Conn]; call [Server] to use SDP over RDMA on them.
func NewListener(ln net.Listener, config *Config) (*Listener, error) {
	n := policy.TCP
	if _, ok := ln.Addr().(*net.UnixAddr); ok {
		n = policy.Network{Name: "unix", TCP: "unix"}
	}
	l, err := config.listener(n, ln)
	if err != nil {
		return nil, err
	}
	l.set.network = netname.Unnamed
	return l, nil
}

func newListener(n policy.Network, ln net.Listener, set settings) *Listener {
	l := &Listener{network: n, set: set, ln: ln}
	if adopted.Settled(ln) {
		l.set.shm = false // package net has decided
	}
	logListen(n, ln.Addr(), &set)
	if _, kernel := ln.(*net.TCPListener); n.Only || set.Asks() && kernel {
		l.l = listener.New(ln, set.handshake)
		if !bubble.Inside() {
			runtime.AddCleanup(l, func(l *listener.Listener) { go l.Close() }, l.l)
		}
	}
	return l
}

// Listener accepts connections. Its methods are safe for concurrent use. If a Listener becomes
// unreachable, the garbage collector closes it, as it does a net.TCPListener.
type Listener struct {
	network policy.Network
	set     settings
	ln      net.Listener
	l       *listener.Listener // has ln, and runs handshakes; nil: no client is asked for SDP over RDMA
}

var _ net.Listener = (*Listener)(nil)

// Accept waits for and returns the next connection: a [*Conn] if the client is on this host, or has
// agreed on an RDMA device, and otherwise what the underlying listener has returned.
//
// Every error is a [*net.OpError]. If the listener serves clients of SDP over RDMA, a connection that fails
// during its handshake is not an error of Accept, an error of the listening socket is returned once, and
// connections whose handshake has begun when Close is called are returned for up to 1 s.
func (l *Listener) Accept() (net.Conn, error) {
	defer runtime.KeepAlive(l)
	for {
		up := &handshake.Connection{}
		var err error
		if l.l != nil {
			up, err = l.l.Accept()
		} else {
			up.Conn, err = l.ln.Accept()
		}
		if err != nil && local.Relieve(context.Background(), err) {
			continue
		}
		if err != nil {
			return nil, l.network.OpError("accept", nil, l.Addr(), netname.Cause(err))
		}
		c, err := l.set.conn(up)
		if err == nil {
			return c, nil
		}
		l.set.handshake.Logger.Debug("sdp: accept: connection set-up failed", "client", up.Conn.RemoteAddr(), "error", err)
	}
}

// SetDeadline sets the deadline for Accept calls, including those in progress. After it they
// fail with an error that wraps os.ErrDeadlineExceeded. A zero time value disables the deadline. If the
// underlying listener has no SetDeadline, the error wraps errors.ErrUnsupported. After Close it is
// net.ErrClosed itself, as package net's is.
func (l *Listener) SetDeadline(t time.Time) error {
	defer runtime.KeepAlive(l)
	err := errors.ErrUnsupported
	if l.l != nil {
		err = l.l.SetDeadline(t)
	} else if ln, ok := l.ln.(interface{ SetDeadline(time.Time) error }); ok {
		err = ln.SetDeadline(t)
	}
	if err == nil || errors.Is(err, net.ErrClosed) {
		return err
	}
	return l.network.OpError("set", nil, l.Addr(), err)
}

// File returns a copy of the listening socket, which another process can use. Closing the
// Listener does not affect the copy. If the underlying listener has no File, the error wraps errors.ErrUnsupported.
func (l *Listener) File() (*os.File, error) {
	ln, ok := l.ln.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, l.network.OpError("file", nil, l.Addr(), errors.ErrUnsupported)
	}
	f, err := ln.File()
	runtime.KeepAlive(l)
	if err != nil {
		return nil, l.network.OpError("file", nil, l.Addr(), err)
	}
	return f, nil
}

// SyscallConn returns a raw network connection to the listening socket, for example to set
// options with Control.
func (l *Listener) SyscallConn() (syscall.RawConn, error) {
	ln, ok := l.ln.(syscall.Conn)
	if !ok {
		return nil, l.network.OpError("raw-control", nil, l.Addr(), errors.ErrUnsupported)
	}
	raw, err := ln.SyscallConn()
	if err != nil {
		return nil, l.network.OpError("raw-control", nil, l.Addr(), err)
	}
	return &rawListener{raw, l}, nil
}

// rawListener is what Listener.SyscallConn returns. It keeps the Listener reachable.
type rawListener struct {
	syscall.RawConn
	l *Listener
}

func (r *rawListener) Control(f func(fd uintptr)) error {
	err := r.RawConn.Control(f)
	runtime.KeepAlive(r.l)
	if err != nil {
		return r.l.network.OpError("raw-control", nil, r.l.Addr(), err)
	}
	return nil
}

// Close stops listening. If another process has the socket, connections in the kernel's backlog stay there
// for it.
func (l *Listener) Close() error {
	var err error
	if l.l != nil {
		err = l.l.Close()
	} else {
		err = l.ln.Close()
	}
	runtime.KeepAlive(l)
	if err != nil {
		return l.network.OpError("close", nil, l.Addr(), err)
	}
	return nil
}

// Addr returns the listener's address, a [*net.TCPAddr] or [*net.UnixAddr].
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }
