package handshake

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gosdp/gosdp/internal/handshake/handshaketest"
	"github.com/gosdp/gosdp/wire"
)

// TestStaysOnIWARP has a channel that does not come up. The connection stays where it is, if
// the server allows that and iwarp was offered.
func TestStaysOnIWARP(t *testing.T) {
	cfg := testConfig()
	cfg.SDPOnly = true
	c := Client{Config: &cfg, offered: []wire.Device{wire.DeviceVerbs, wire.DeviceIWARP}}
	conn, _ := handshaketest.TCPPair(t)
	stays, err := c.stepUp(t.Context(), &Connection{Conn: conn}, nil, nil, wire.Choice{Device: wire.DeviceVerbs, Stay: true})
	assert.NoError(t, err)
	assert.True(t, stays)
	assert.Equal(t, "the peer has sent no token", c.declined.Of(wire.DeviceVerbs))
}
