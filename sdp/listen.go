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
	"github.com/gosdp/gosdp/internal/localpeer"
	"github.com/gosdp/gosdp/internal/rules"
	"github.com/gosdp/gosdp/listener"
)

// Listen announces on the local network address. The network must be "tcp", "tcp4", "tcp6",
// "unix", "sdp", "sdp4" or "sdp6". On the first four the listener serves clients with and
// without SDP, on one socket. On the others it closes the connections of clients that do not
// speak SDP. Addresses and errors are those of [net.Listen]. Listen uses the default [Config].
func Listen(network, address string) (net.Listener, error) {
	return new(ListenConfig).Listen(context.Background(), network, address)
}

// ListenConfig contains options for listening. Its method is safe for concurrent use as long
// as its fields do not change.
type ListenConfig struct {
	// Net makes the underlying listener.
	Net net.ListenConfig
	// Config has the options of SDP. Nil means the defaults.
	Config *Config
}

// Listen announces on the local network address, as the function [Listen] does, and returns a
// [*Listener]. It uses ctx to resolve the address.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	n, err := parseNetwork(network)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	rule, known := lc.Config.rule(n, rules.Server, address)
	n = n.ruled(rule)
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
	if known {
		return newListener(n, ln, set, listener.New), nil
	}
	l, err := lc.Config.listener(n, ln, listener.New)
	if err != nil {
		ln.Close()
		return nil, err
	}
	return l, nil
}

// accepter is listener.New or listener.NewOnDemand.
type accepter = func(net.Listener, handshake.Config) *listener.Listener

// listener returns a Listener that accepts connections from ln, under the rule for its address.
func (c *Config) listener(n network, ln net.Listener, how accepter) (*Listener, error) {
	n = n.ruled(c.ruleAt(n, rules.Server, ln.Addr()))
	set, err := c.settings(n, n.only)
	if err != nil {
		return nil, n.opError("listen", nil, ln.Addr(), err)
	}
	return newListener(n, ln, set, how), nil
}

// FileListener returns a listener on a copy of the listening socket f, as [net.FileListener]
// does. It uses the default [Config]. Another process may accept from the same socket, so the
// listener accepts connections only while the program waits in Accept.
func FileListener(f *os.File) (net.Listener, error) {
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	l, err := wrap(ln, nil, listener.NewOnDemand)
	if err != nil {
		ln.Close()
		return nil, err
	}
	return l, nil
}

// NewListener returns a Listener that accepts connections from ln and serves clients with and
// without SDP. The Listener owns ln. config may be nil. NewListener fails only if the
// configuration is invalid.
//
// Programs on this host can see that ln serves SDP if it is a socket, or wraps a socket that
// was marked by [Announce].
func NewListener(ln net.Listener, config *Config) (*Listener, error) {
	return wrap(ln, config, listener.New)
}

func wrap(ln net.Listener, config *Config, how accepter) (*Listener, error) {
	n := network{name: "tcp", tcp: "tcp"}
	if _, ok := ln.Addr().(*net.UnixAddr); ok {
		n = network{name: "unix", tcp: "unix"}
	}
	l, err := config.listener(n, ln, how)
	if err != nil {
		return nil, err
	}
	l.set.network = unnamed
	return l, nil
}

// Announce marks a socket before it listens, so that programs on this host can see that it
// serves SDP. It is a Control function for a [net.ListenConfig], and is needed only if the
// listener is wrapped before it is passed to [NewListener]:
//
//	lc := net.ListenConfig{Control: sdp.Announce}
//	ln, err := lc.Listen(ctx, "tcp", address)
//	ln = netutil.LimitListener(ln, 100)
//	sdp.NewListener(ln, nil)
//
// Programs on this host start the SDP handshake with a marked socket, so it must serve SDP.
// The mark includes IP_FREEBIND, so binding to an address that this host does not have is no
// error. On systems other than Linux it fails with errors.ErrUnsupported. It does nothing if a rule of the operator
// (SDP_CONFIG) makes the listener plain TCP, or may do so because the port is not known yet.
func Announce(network, address string, c syscall.RawConn) error {
	if n, err := parseNetwork(network); err == nil {
		rule, known := (*Config)(nil).rule(n, rules.Server, address)
		if !known || rule != nil && rule.Use == rules.TCP {
			return nil
		}
	}
	return localpeer.Mark(c, localpeer.Listener)
}

func newListener(n network, ln net.Listener, set settings, how accepter) *Listener {
	l := &Listener{network: n, set: set, l: how(ln, set.Config)}
	n.logListen(ln.Addr(), &set)
	if !bubble.Inside() {
		runtime.AddCleanup(l, func(l *listener.Listener) { go l.Close() }, l.l)
	}
	return l
}

// Listener accepts SDP connections and, except on networks "sdp", "sdp4" and "sdp6", plain
// ones. Its methods are safe for concurrent use. If a Listener becomes unreachable, the garbage
// collector closes it, as it does a net.TCPListener.
type Listener struct {
	network network
	set     settings
	l       *listener.Listener
}

var _ net.Listener = (*Listener)(nil)

// Accept waits for and returns the next connection: a [*Conn] if the client speaks SDP, and
// otherwise a [*net.TCPConn] or [*net.UnixConn].
//
// Every error is a [*net.OpError]. A connection that fails during its handshake is not an error
// of Accept. An error of the listening socket, such as having no descriptors left, is returned
// once, and the next Accept continues. After Close, Accept returns the connections that were
// accepted before, for up to 0.2 s those that are set up, and for up to 1 s those in their
// handshake, and then an error that wraps net.ErrClosed.
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
		l.set.Logger.Debug("sdp: accept: connection set-up failed", "client", up.Conn.RemoteAddr(), "error", err)
	}
}

// SetDeadline sets the deadline for Accept calls, including those in progress. After it they
// fail with an error that wraps os.ErrDeadlineExceeded. A zero time value disables the deadline.
func (l *Listener) SetDeadline(t time.Time) error {
	err := l.l.SetDeadline(t)
	runtime.KeepAlive(l)
	return err
}

// File returns a copy of the listening socket, which another process can use. Closing the
// Listener does not affect the copy. The error wraps errors.ErrUnsupported if the program made the
// underlying listener, and that has no File. After File the Listener accepts connections only while the
// program waits in Accept, because the others may be meant for the other process. Until the next
// Accept, programs on this host do not see that it serves SDP.
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

// SyscallConn returns a raw network connection to the listening socket, for example to set
// options with Control. After Control the Listener accepts connections as it does after File,
// because the program may call accept itself, or pass the descriptor to another process. A
// [grpc.Server] calls Control before it accepts: a dial between the two is plain TCP.
//
// [grpc.Server]: https://pkg.go.dev/google.golang.org/grpc#Server
func (l *Listener) SyscallConn() (syscall.RawConn, error) {
	ln, ok := l.l.Underlying().(syscall.Conn)
	if !ok {
		return nil, l.network.opError("raw-control", nil, l.Addr(), errors.ErrUnsupported)
	}
	raw, err := ln.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &rawListener{raw, l}, nil
}

// rawListener is what Listener.SyscallConn returns. It keeps the Listener reachable.
type rawListener struct {
	syscall.RawConn
	l *Listener
}

func (r *rawListener) Control(f func(fd uintptr)) error {
	r.l.l.OnDemand()
	err := r.RawConn.Control(f)
	runtime.KeepAlive(r.l)
	return err
}

// Close stops listening. Accept still returns connections that were accepted before: for up to 0.2 s
// those that are set up, and for up to 1 s those in their handshake. Then they are closed. If another process
// has the socket, connections in the kernel's backlog stay there for it. If there are no
// connections to return, Close waits until all goroutines of the listener have ended.
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
