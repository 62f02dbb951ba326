package proxy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/localpeer"
)

// TestReloadWhereSDPIsOff does not make clients believe that a route serves SDP.
func TestReloadWhereSDPIsOff(t *testing.T) {
	t.Setenv("SDP_DEVICES", "tcp")
	p, _ := running(t, 0)
	server := says(t, "word")
	address := freeAddress(t)
	for _, network := range []string{TCP, Auto} {
		require.NoError(t, p.Apply("", []Route{route(t, network+"://"+address, "tcp://"+server)}))
	}
	e := p.entrances["auto://"+address]
	require.NotNil(t, e.raw)
	assert.False(t, localpeer.Marked(e.raw, localpeer.Listener))
}
