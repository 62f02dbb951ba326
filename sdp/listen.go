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
	"github.com/gosdp/gosdp/internal/localpeer"
	"github.com/gosdp/gosdp/listener"
)

// Listen listens on the local address. Networks "tcp", "tcp4", "tcp6" and "unix" serve clients
// that speak SDP and clients that do not on one socket. On "sdp", "sdp4" and "sdp6" a
// connection that does not speak SDP is closed. Addresses and errors are those of net.Listen.
// Listen uses the default [Config].
func Listen(network, address string) (net.Listener, error) {
	return new(ListenConfig).Listen(context.Background(), network, address)
}

// ListenConfig listens with a configuration. Its method is safe for concurrent use as long as
// its fields do not change.
type ListenConfig struct {
	// Net makes the TCP listener.
	Net net.ListenConfig
	// Config is for SDP; nil means the defaults.
	Config *Config
}

// Listen listens on the local address, as the function Listen does, and returns a [*Listener].
// ctx is used to resolve the address.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	n, err := parseNetwork(network)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	set, err := lc.Config.settings(n, n.only)
	if err != nil {
		return nil, n.opError("listen", nil, nil, err)
	}
	tcp := lc.Net
	if tcp.MultipathTCP() && len(set.Devices) > 0 && !localpeer.MarksMultipath() {
		tcp.SetMultipathTCP(false)
	}
	ln, err := tcp.Listen(adopted.Plain(ctx), n.tcp, address)
	if err != nil {
		return nil, n.opError("listen", nil, nil, err)
	}
	return newListener(n, ln, set), nil
}

// FileListener returns a listener on a copy of the listening socket f, as net.FileListener
// does. The socket may be inherited from another process, which may still accept from it.
// Therefore the listener takes connections only while the program waits in Accept. It uses
// the default [Config]; NewListener takes another one.
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
	l.l.OnDemand()
	return l, nil
}

// NewListener serves SDP and plain TCP to the clients that ln accepts. ln belongs to the
// Listener from then on. Programs on this host see that it serves SDP if ln is a socket, or
// wraps a socket that was marked by [Announce]. config may be nil. An error means that the
// configuration is malformed.
func NewListener(ln net.Listener, config *Config) (*Listener, error) {
	n := network{name: "tcp", tcp: "tcp"}
	set, err := config.settings(n, false)
	if err != nil {
		return nil, n.opError("listen", nil, ln.Addr(), err)
	}
	return newListener(n, ln, set), nil
}

// Announce marks a socket that will listen, so that programs on this host see that it serves
// SDP. It is a Control function for a net.ListenConfig. It is needed only if NewListener gets
// a wrapper around the listener:
//
//	lc := net.ListenConfig{Control: sdp.Announce}
//	ln, err := lc.Listen(ctx, "tcp", address)
//	ln = netutil.LimitListener(ln, 100)
//	sdp.NewListener(ln, nil)
//
// Programs on this host send a Request to a marked socket, so only SDP may be served on it.
// The mark includes IP_FREEBIND: binding to an address that this host does not have is no
// error. Announce fails on systems that have no such marks.
func Announce(_, _ string, c syscall.RawConn) error {
	return localpeer.Mark(c, localpeer.Listener)
}

func newListener(n network, ln net.Listener, set settings) *Listener {
	l := &Listener{network: n, set: set, l: listener.New(ln, set.Config)}
	if !bubble.Inside() {
		runtime.AddCleanup(l, func(l *listener.Listener) { go l.Close() }, l.l)
	}
	return l
}

// Listener accepts connections of SDP and, unless its network is one of SDP's, of plain TCP.
// Its methods are safe for concurrent use. If a Listener becomes unreachable, the garbage
// collector closes it, as it does a net.TCPListener.
type Listener struct {
	network network
	set     settings
	l       *listener.Listener
}

var _ net.Listener = (*Listener)(nil)

// Accept waits for the next connection and returns it: a [*Conn] if the client speaks SDP, and
// otherwise a [*net.TCPConn] or [*net.UnixConn]. It does not return the errors of single
// connections. Every error is a [*net.OpError]. An error of the socket, for example that the
// process has no descriptors left, is returned once, and the next Accept goes on. After Close,
// Accept returns connections that had been accepted, for at most a second, and then an error
// that wraps net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	defer runtime.KeepAlive(l)
	for {
		up, err := l.l.Accept()
		if err != nil {
			return nil, l.network.opError("accept", nil, l.Addr(), cause(err))
		}
		c, err := l.set.conn(up)
		if err == nil {
			return c, nil
		}
		l.set.Logger.Debug("sdp: a connection did not come up", "client", up.Conn.RemoteAddr(), "error", err)
	}
}

// SetDeadline sets when Accept calls, including those in progress, fail with an error that
// wraps os.ErrDeadlineExceeded. The zero time means never.
func (l *Listener) SetDeadline(t time.Time) error {
	err := l.l.SetDeadline(t)
	runtime.KeepAlive(l)
	return err
}

// File returns a duplicate of the listening socket, on which another program can listen. It
// stays open when the Listener is closed. After File this Listener takes connections only
// while the program waits in Accept, because the rest may be for the other program.
func (l *Listener) File() (*os.File, error) {
	ln, ok := l.l.Underlying().(interface{ File() (*os.File, error) })
	if !ok {
		return nil, l.network.opError("file", nil, l.Addr(), errors.ErrUnsupported)
	}
	f, err := ln.File()
	runtime.KeepAlive(l)
	if err != nil {
		return nil, l.network.opError("file", nil, l.Addr(), err)
	}
	l.l.OnDemand()
	return f, nil
}

// SyscallConn returns the listening socket, for example to set options with Control.
func (l *Listener) SyscallConn() (syscall.RawConn, error) {
	ln, ok := l.l.Underlying().(syscall.Conn)
	if !ok {
		return nil, l.network.opError("raw-control", nil, l.Addr(), errors.ErrUnsupported)
	}
	return ln.SyscallConn()
}

// Close stops listening. For at most a second Accept still returns connections that were
// accepted, including those that are being set up; then they are closed. Connections in the
// kernel's backlog stay there if another process has the socket too. If no connections are
// left, Close returns after all goroutines of the listener have ended.
func (l *Listener) Close() error {
	err := l.l.Close()
	runtime.KeepAlive(l)
	if err != nil {
		return l.network.opError("close", nil, l.Addr(), err)
	}
	return nil
}

// Addr returns the listener's address, a [*net.TCPAddr] or [*net.UnixAddr].
func (l *Listener) Addr() net.Addr { return l.l.Addr() }
