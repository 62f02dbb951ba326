package handshake

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestWhoIsAsked: a server waits for clients that may be asked, and for all if it must speak SDP. A client
// asks no others, nor one that has shown that it speaks plain TCP.
func TestWhoIsAsked(t *testing.T) {
	defer func() { peers.until = nil }()
	far := func(to string) net.Conn { return elsewhere{to: to} }
	cfg := testConfig()
	c := Client{Config: &cfg}
	assert.False(t, cfg.expects(far("192.0.2.1:1")))
	assert.False(t, c.Asks(far("192.0.2.1:1")))
	cfg.MayAsk = func(local, remote netip.Addr) bool { return remote.String() == "192.0.2.1" }
	assert.True(t, cfg.expects(far("192.0.2.1:1")))
	assert.True(t, c.Asks(far("192.0.2.1:1")))
	c.Remember(far("192.0.2.1:1"), io.EOF)
	assert.False(t, c.Asks(far("192.0.2.1:1")))
	assert.True(t, c.Asks(far("192.0.2.1:2")))
	assert.False(t, cfg.expects(far("192.0.2.2:1")))
	assert.False(t, c.Asks(far("192.0.2.2:1")))
	pipe, _ := net.Pipe()
	assert.False(t, cfg.expects(pipe), "it has no address that could be allowed")
	cfg.Devices = nil
	assert.False(t, cfg.expects(far("192.0.2.1:1")))
	assert.False(t, c.Asks(far("192.0.2.1:2")))
	cfg.SDPOnly = true
	assert.True(t, cfg.expects(far("192.0.2.2:1")))
	assert.True(t, cfg.expects(pipe))
}

// elsewhere is a connection with another host.
type elsewhere struct {
	net.Conn
	to string
}

func (e elsewhere) LocalAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(198, 51, 100, 1), Port: 80}
}

func (e elsewhere) RemoteAddr() net.Addr {
	a, _ := net.ResolveTCPAddr("tcp", e.to)
	return a
}
