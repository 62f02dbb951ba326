package sdp

import (
	"context"
	"net"

	"github.com/gosdp/gosdp/listener"
)

// Listen listens on the local address. Networks "tcp", "tcp4" and "tcp6" serve
// clients of SDP and of plain TCP on one port; "sdp", "sdp4" and "sdp6" close
// what does not speak SDP. Addresses and errors are those of net.Listen. It uses
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
	dev, err := lc.Config.devices()
	if err == nil && n.only && len(dev.usable) == 0 {
		err = dev.why
	}
	if err != nil {
		return nil, n.opError("listen", nil, nil, err)
	}
	ln, err := lc.Net.Listen(ctx, n.tcp, address)
	if err != nil {
		return nil, n.opError("listen", nil, nil, err)
	}
	cfg := lc.Config.filled()
	names := make([]string, len(dev.usable))
	for i, d := range dev.usable {
		names[i] = d.String()
	}
	return &Listener{network: n, l: listener.New(ln, listener.Config{
		SDPOnly:       n.only,
		Devices:       names,
		LookTime:      cfg.LookTime,
		HandshakeTime: cfg.HandshakeTimeout,
		CRC:           cfg.CRC,
		Hello:         ourHello(),
	})}, nil
}

// Listener accepts connections of SDP, and of plain TCP if its network is one
// of "tcp". Its methods are safe for concurrent use.
type Listener struct {
	network network
	l       *listener.Listener
}

var _ net.Listener = (*Listener)(nil)

// Accept waits for the next connection and returns it: a [*Conn] if the client
// speaks SDP, and the [*net.TCPConn] that it is if not. A client that fails to
// come up is no error of the listener's. Errors are [*net.OpError]s, around
// net.ErrClosed after Close.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		in, err := l.l.Accept()
		if err != nil {
			return nil, l.network.opError("accept", nil, l.Addr(), err)
		}
		if in.QP == nil {
			return in.Conn, nil
		}
		c, err := newConn(in.Conn, in.QP, in.Device, true, in.Local, in.Peer, &in.First)
		if err == nil {
			return c, nil
		}
	}
}

// Close stops listening. Connections that have not been accepted are closed,
// those that have been are not touched. It returns when no goroutine of the
// listener is left.
func (l *Listener) Close() error {
	if err := l.l.Close(); err != nil {
		return l.network.opError("close", nil, l.Addr(), err)
	}
	return nil
}

// Addr returns the listener's address, a [*net.TCPAddr].
func (l *Listener) Addr() net.Addr { return l.l.Addr() }
