package engine

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/budget"
	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/netname"
	"github.com/gosdp/gosdp/internal/units"
	"github.com/gosdp/gosdp/listener"
	_ "github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

// The connections of these tests come up as those of package sdp do, over iwarp: by the handshake's
// Client, and by its Server or package listener. Config, Dialer, ListenConfig and Server are what the
// tests need of those of package sdp.

// The environment's variables that the tests set.
const (
	thresholdVariable = "SDP_ZCOPY_THRESHOLD"
	memoryVariable    = "SDP_MEMORY"
)

// Config has what a test sets of a connection. Zero values mean times that are too long for a test
// that hangs, and what the environment says.
type Config struct {
	Probe                                         []netip.Prefix // whom a Dial on network tcp may ask
	ReplyTimeout, HandshakeTimeout, StepUpTimeout time.Duration
	CRC                                           bool
	ZCopyThreshold, ReadBuffer                    int
	Logger                                        *slog.Logger
}

// loopback are the addresses of this host.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// asking has a listener on network tcp wait for clients that ask for SDP, and a client ask.
var asking = &Config{Probe: loopback}

// handshake returns the configuration of a handshake on a network.
func (c *Config) handshake(network string) handshake.Config {
	readMemory()
	hello := OurHello(c.ReadBuffer)
	hello.Bufs = RecvBuffers
	log := c.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	or := func(d, instead time.Duration) time.Duration {
		if d == 0 {
			return instead
		}
		return d
	}
	return handshake.Config{
		SDPOnly: network == "sdp",
		Devices: []wire.Device{wire.DeviceIWARP},
		MayAsk: func(_, remote netip.Addr) bool {
			for _, p := range c.Probe {
				if p.Contains(remote) {
					return true
				}
			}
			return false
		},
		ReplyTimeout:     or(c.ReplyTimeout, time.Minute),
		PlainTTL:         time.Minute,
		HandshakeTimeout: or(c.HandshakeTimeout, time.Minute),
		StepUpTimeout:    or(c.StepUpTimeout, 10*time.Second),
		CRC:              c.CRC,
		Logger:           log,
		Hello:            hello,
		Promise:          func() (wire.Hello, error) { return Reserve(c.ReadBuffer) },
		Withdraw:         Unreserve,
	}
}

// readMemory sets the budget to what the environment says.
func readMemory() { budget.Process.SetLimit(bytesOf(memoryVariable)) }

// bytesOf returns the number of bytes in a variable of the environment; 0: it is not set.
func bytesOf(variable string) int64 {
	text := os.Getenv(variable)
	if text == "" {
		return 0
	}
	n, err := units.Bytes(text)
	if err != nil {
		panic(err)
	}
	return n
}

// conn returns the connection that a handshake has led to.
func (c *Config) conn(up *handshake.Connection, dialled bool) (net.Conn, error) {
	if up.QP == nil {
		return up.Conn, nil
	}
	defer Unreserve(up.Promised)
	threshold := c.ZCopyThreshold
	if threshold == 0 {
		threshold = int(bytesOf(thresholdVariable))
	}
	made, err := New(up.Conn, up.QP, Setup{
		Network:  netname.Of("sdp"),
		Device:   up.Device,
		Dialled:  dialled,
		Decided:  !up.MustDecide && up.First == nil,
		Declined: up.Declined,
		Local:    up.Local,
		Peer:     up.Peer,
		First:    up.First,
		Tuning:   Tuning{Threshold: threshold, Window: c.ReadBuffer, Logger: c.Logger},
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// Listener accepts connections.
type Listener struct {
	*listener.Listener
	config *Config
}

// Accept returns the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		up, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c, err := l.config.conn(up, false); err == nil {
			return c, nil
		}
	}
}

// ListenConfig makes Listeners.
type ListenConfig struct{ Config *Config }

// Listen returns a Listener on network sdp or tcp.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &Listener{listener.New(ln, lc.Config.handshake(network)), lc.Config}, nil
}

// Dialer dials.
type Dialer struct {
	Config    *Config
	LocalAddr net.Addr
}

// Dial connects on network sdp, or on network tcp, where the peer may be plain.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	tcp := net.Dialer{LocalAddr: d.LocalAddr}
	conn, err := tcp.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	config := d.Config.handshake(network)
	client := handshake.Client{Config: &config, Redials: true}
	if network == "tcp" && !client.Asks(conn) {
		return conn, nil
	}
	ctx := context.Background()
	up, err := client.Connect(ctx, conn)
	if err != nil {
		if client.Next(ctx, err) == handshake.Keep {
			return conn, nil
		}
		handshake.Abort(conn)
		return nil, &net.OpError{Op: "dial", Net: network, Source: conn.LocalAddr(), Addr: conn.RemoteAddr(), Err: err}
	}
	return d.Config.conn(up, true)
}

// Server performs the server's side of the handshake on a connection.
func Server(ctx context.Context, conn net.Conn, config *Config) (net.Conn, error) {
	up, err := handshake.Serve(ctx, conn, config.handshake("tcp"))
	if err != nil {
		return nil, err
	}
	return config.conn(up, false)
}

// engineListen and engineDial are the ends of connections.
func engineListen() (net.Listener, error) {
	lc := ListenConfig{Config: new(Config)}
	return lc.Listen(context.Background(), "sdp", "127.0.0.1:0")
}

func engineDial(address string) (net.Conn, error) {
	return (&Dialer{Config: new(Config)}).Dial("sdp", address)
}

// engineOf returns the connection of the engine that c is.
func engineOf(t testing.TB, c net.Conn) *Conn {
	t.Helper()
	require.IsType(t, (*Conn)(nil), c)
	return c.(*Conn)
}

// dialled returns both ends of a connection.
func dialled() (client, server *Conn, err error) {
	ln, err := engineListen()
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	c, s, err := bothEnds(ln, engineDial)
	if err != nil {
		return nil, nil, err
	}
	return c.(*Conn), s.(*Conn), nil
}

// pair returns both ends of a connection that a hanging test does not survive.
func pair(t testing.TB) (client, server *Conn) {
	t.Helper()
	c, s, err := dialled()
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		s.Close()
	})
	end := time.Now().Add(soon)
	require.NoError(t, c.SetDeadline(end))
	require.NoError(t, s.SetDeadline(end))
	return c, s
}
