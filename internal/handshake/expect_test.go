package handshake

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestProbedClients on other hosts are waited for, and no others.
func TestProbedClients(t *testing.T) {
	far := func(to string) net.Conn { return elsewhere{to: to} }
	cfg := testConfig()
	assert.Equal(t, nothing, cfg.expects(far("192.0.2.1:1")))
	cfg.MayAsk = func(local, remote netip.Addr) bool { return remote.String() == "192.0.2.1" }
	assert.Equal(t, possible, cfg.expects(far("192.0.2.1:1")))
	assert.Equal(t, nothing, cfg.expects(far("192.0.2.2:1")))
	cfg.Devices = nil
	assert.Equal(t, nothing, cfg.expects(far("192.0.2.1:1")))
	cfg.SDPOnly = true
	assert.Equal(t, possible, cfg.expects(far("192.0.2.2:1")))
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
