package sdp

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/localpeer"
	"github.com/gosdp/gosdp/listener"
	"github.com/gosdp/gosdp/wire"
)

// Listen listens on the local address. Networks "tcp", "tcp4" and "tcp6" serve
// clients of SDP and of plain TCP on one port, and "unix" those of SDP and of none
// on one Unix socket; "sdp", "sdp4" and "sdp6" close what does not speak SDP. Addresses and errors are those of net.Listen. It uses
// the default [Config].
func Listen(network, address string) (net.Listener, error) {
	return new(ListenConfig).Listen(context.Background(), network, address)
}

// ListenConfig listens with a configuration. Its method is safe for concurrent
// use while nobody changes its fields.
type ListenConfig struct {
	// Net makes the TCP listener.
	Net net.ListenConfig
	// Config is for what comes after; nil means the defaults.
	Config *Config
}

// Listen listens on the local address, as the function Listen does; what it
// returns is a [*Listener]. ctx is for resolving the address.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	n, err := parseNetwork(network)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	cfg, err := lc.Config.listening(n, n.only)
	if err != nil {
		return nil, n.opError("listen", nil, nil, err)
	}
	tcp := lc.Net
	if tcp.MultipathTCP() && len(cfg.Devices) > 0 && !localpeer.MarksMultipath() {
		tcp.SetMultipathTCP(false)
	}
	ln, err := tcp.Listen(ctx, n.tcp, address)
	if err != nil {
		return nil, n.opError("listen", nil, nil, err)
	}
	return newListener(n, ln, cfg), nil
}

// FileListener returns a listener on a copy of the listening socket f, as
// net.FileListener does: one that was inherited from another process, say. Because that
// may still accept from the socket too, the listener takes connections only while the
// program waits in Accept. It uses the default [Config]; NewListener takes another.
func FileListener(f *os.File) (net.Listener, error) {
	below, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	ln, err := NewListener(below, nil)
	if err != nil {
		below.Close()
		return nil, err
	}
	ln.l.OnDemand()
	return ln, nil
}

// NewListener serves SDP, and plain TCP, to the clients that ln accepts: a
// socket that the program was given, or one with a limit on it. ln belongs to
// the Listener from then on. Programs on this host find that it serves SDP if ln is a
// socket, or was one that Announce has marked before something was put around it. config
// may be nil. It fails only if the devices make no sense.
func NewListener(ln net.Listener, config *Config) (*Listener, error) {
	n := network{name: "tcp", tcp: "tcp"}
	cfg, err := config.listening(n, false)
	if err != nil {
		return nil, n.opError("listen", nil, ln.Addr(), err)
	}
	return newListener(n, ln, cfg), nil
}

// Announce marks a socket that will listen, so that programs on this host find that it
// serves SDP. It is a Control for a net.ListenConfig, and needed only where NewListener
// gets something that is put around the listener of that:
//
//	lc := net.ListenConfig{Control: sdp.Announce}
//	ln, err := lc.Listen(ctx, "tcp", address)
//	ln = netutil.LimitListener(ln, 100)
//	sdp.NewListener(ln, nil)
//
// Whatever else serves the socket is sent a Request by this host's diallers. Since the mark
// is set before the socket is bound, an address that this host does not have is no error
// then (IP_FREEBIND). It fails where the system does not know such marks.
func Announce(_, _ string, c syscall.RawConn) error {
	return localpeer.Mark(c, localpeer.Listener)
}

func newListener(n network, ln net.Listener, cfg accepting) *Listener {
	l := &Listener{network: n, accepting: cfg, l: listener.New(ln, cfg.Config)}
	if !bubble.Inside() {
		runtime.AddCleanup(l, func(l *listener.Listener) { go l.Close() }, l.l)
	}
	return l
}

// accepting is the configuration of the passive side.
type accepting struct {
	listener.Config
	devices devices
}

// listening returns how to treat those who connect on a network; asked: the program asks
// for SDP.
func (c *Config) listening(n network, asked bool) (accepting, error) {
	dev, err := c.devices(asked)
	if err == nil && n.only && len(dev.usable) == 0 {
		err = dev.why()
	}
	if err != nil {
		return accepting{}, err
	}
	cfg := c.filled()
	names := make([]string, len(dev.usable))
	for i, d := range dev.usable {
		names[i] = d.String()
	}
	hello := ourHello(cfg.ReadBuffer)
	hello.Bufs = recvBuffers // for the device
	return accepting{listener.Config{
		SDPOnly:        n.only,
		Devices:        names,
		Probed:         dev.mayAsk,
		Worth:          dev.worthAt,
		HandshakeTime:  cfg.HandshakeTimeout,
		StepUpTime:     cfg.StepUpTimeout,
		ThroughProxies: cfg.StepUpThroughProxies,
		UIDs:           cfg.PeerUIDs,
		Dir:            dev.dir,
		Services:       dev.services,
		ZeroCopy:       dev.zeroCopy(),
		CRC:            cfg.CRC,
		Logger:         cfg.Logger,
		Hello:          hello,
		Promise:        func() wire.Hello { return reserve(cfg.ReadBuffer) },
		Withdraw:       unreserve,
	}, dev}, nil
}

// Listener accepts connections of SDP, and of plain TCP if its network is one
// of "tcp". Its methods are safe for concurrent use. A Listener that becomes
// unreachable without having been closed is closed by the garbage collector, as a
// net.TCPListener is.
type Listener struct {
	network   network
	accepting accepting
	l         *listener.Listener
}

var _ net.Listener = (*Listener)(nil)

// Accept waits for the next connection and returns it: a [*Conn] if the client
// speaks SDP, and the [*net.TCPConn] or [*net.UnixConn] that it is if not. A client that
// fails to come up is no error of the listener's. Errors are [*net.OpError]s; an error
// of the socket, as when the process has no descriptor left, is returned once, and the
// next Accept goes on. After Close it returns what had been accepted by then, for a
// second at most, and then an error that wraps net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	defer runtime.KeepAlive(l)
	for {
		in, err := l.l.Accept()
		if err != nil {
			return nil, l.network.opError("accept", nil, l.Addr(), cause(err))
		}
		c, err := l.accepting.conn(in)
		if err == nil {
			return c, nil
		}
		l.accepting.Logger.Debug("sdp: a connection did not come up", "client", in.Conn.RemoteAddr(), "error", err)
	}
}

// conn returns the connection that has come up.
func (a *accepting) conn(in *listener.Incoming) (net.Conn, error) {
	if in.QP == nil {
		return in.Conn, nil
	}
	defer unreserve(in.Local) // the connection has charged its own
	why := a.devices.declined
	if len(in.Declined) > 0 {
		declined.Add(uint64(len(in.Declined)))
		why = slices.Clone(why)
		for device, of := range in.Declined {
			why.set(device, of)
		}
	}
	return newConn(in.Conn, in.QP, setup{
		device: in.Device, decided: in.First == nil, declined: why, tuning: a.devices.tuning,
		local: in.Local, peer: in.Peer, first: in.First,
	})
}

// SetDeadline sets when Accept calls, those in progress included, fail with an
// error that wraps os.ErrDeadlineExceeded; the zero time means never.
func (l *Listener) SetDeadline(t time.Time) error {
	err := l.l.SetDeadline(t)
	runtime.KeepAlive(l)
	return err
}

// File returns a duplicate of the listening socket, which lives on when the
// Listener is closed: another program can listen on it. From then on this Listener
// takes connections only while the program waits in Accept, since the others may be the
// other program's.
func (l *Listener) File() (*os.File, error) {
	below, ok := l.l.Below().(interface{ File() (*os.File, error) })
	if !ok {
		return nil, l.network.opError("file", nil, l.Addr(), errors.ErrUnsupported)
	}
	f, err := below.File()
	runtime.KeepAlive(l)
	if err != nil {
		return nil, l.network.opError("file", nil, l.Addr(), err)
	}
	l.l.OnDemand()
	return f, nil
}

// SyscallConn returns the listening socket, whose Control sets and gets options.
func (l *Listener) SyscallConn() (syscall.RawConn, error) {
	below, ok := l.l.Below().(syscall.Conn)
	if !ok {
		return nil, l.network.opError("raw-control", nil, l.Addr(), errors.ErrUnsupported)
	}
	return below.SyscallConn()
}

// Close stops listening. Connections that wait for Accept, or are on their way up, still
// come out of Accept, for a second at most; then they are closed. Connections that the
// kernel still has stay there if another process has the socket too. If none are on
// their way, Close returns when no goroutine of the listener is left.
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
