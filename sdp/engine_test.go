package sdp

import (
	"context"
	"net"
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

// patiently is the config with the times of patient; nil is the default.
func patiently(config *Config) *Config {
	var c Config
	if config != nil {
		c = *config
	}
	c.ReplyTimeout, c.HandshakeTimeout, c.StepUpTimeout = patient.ReplyTimeout, patient.HandshakeTimeout, patient.StepUpTimeout
	return &c
}

// overEngine is the config with the times of patient and the engine's device; nil is the default.
func overEngine(config *Config) *Config {
	c := patiently(config)
	c.Devices = []string{engineDevice}
	return c
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
	c, err := engineDial(ln.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	s, err := ln.Accept()
	if err != nil {
		c.Close()
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
