package sdp

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// engineDevice carries the connections of the tests of the engine, which is SDP over RDMA. Every
// machine has this device.
const engineDevice = "iwarp"

// patient is for tests that load the machine until it is slow.
var patient = &Config{
	ReplyTimeout: time.Minute, HandshakeTimeout: time.Minute, StepUpTimeout: 10 * time.Second,
}

func patientListen(network string) (net.Listener, error) {
	lc := ListenConfig{Config: patient}
	return lc.Listen(context.Background(), network, "127.0.0.1:0")
}

func patientDial(network, address string) (net.Conn, error) {
	return (&Dialer{Config: patient}).Dial(network, address)
}

// patiently is the config with the times of patient, except for a ReplyTimeout that is set; nil is the default.
func patiently(config *Config) *Config {
	var c Config
	if config != nil {
		c = *config
	}
	if c.ReplyTimeout == 0 {
		c.ReplyTimeout = patient.ReplyTimeout
	}
	c.HandshakeTimeout, c.StepUpTimeout = patient.HandshakeTimeout, patient.StepUpTimeout
	return &c
}

// overEngine is the config with the times of patient and the engine's device; nil is the default.
func overEngine(config *Config) *Config {
	c := patiently(config)
	c.Devices = []string{engineDevice}
	return c
}

// loopback are the addresses of this host.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// asking is overEngine for network tcp, on which it lets clients ask this host for SDP, and the listener wait for that.
func asking(config *Config) *Config {
	c := overEngine(config)
	c.Probe = loopback
	return c
}

// askingListen listens on network tcp for clients that may ask for the engine.
func askingListen() (net.Listener, error) {
	lc := ListenConfig{Config: asking(nil)}
	return lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
}

// overSHM is the config with the times of patient and shared memory alone; nil is the default.
func overSHM(config *Config) *Config {
	c := patiently(config)
	c.Devices = []string{deviceSHM}
	return c
}

// requireTCP checks that a connection is on TCP.
func requireTCP(t testing.TB, c net.Conn) {
	t.Helper()
	if up, ok := c.(*Conn); ok {
		require.Equal(t, devicePlain, up.Device())
		return
	}
	require.IsType(t, (*net.TCPConn)(nil), c)
}

// engineListen and engineDial are the ends of connections of the engine.
func engineListen() (net.Listener, error) {
	lc := ListenConfig{Config: overEngine(nil)}
	return lc.Listen(context.Background(), "sdp", "127.0.0.1:0")
}

func engineDial(address string) (net.Conn, error) {
	return (&Dialer{Config: overEngine(nil)}).Dial("sdp", address)
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
