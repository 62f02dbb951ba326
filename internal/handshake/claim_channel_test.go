package handshake

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/rdma"
)

// keptOffer is a channel whose listener is there or not.
type keptOffer struct {
	rdma.Offer
	stands  bool
	dropped int
}

func (k *keptOffer) Claim(uint16) bool { return k.stands }
func (k *keptOffer) Stands() bool      { return k.stands }
func (k *keptOffer) Drop()             { k.dropped++ }

// TestClaimOverChannel: a Request is sent only on the connection that was claimed, if the listener is
// still there, and in time.
func TestClaimOverChannel(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	dialled := func() net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	conn, other := dialled(), dialled()
	claimed := func(stands bool, since time.Duration) (*Client, *keptOffer) {
		k := &keptOffer{stands: stands}
		c := &Client{Config: &Config{Logger: slog.New(slog.DiscardHandler)}}
		c.claims = new(shmdir.Claims)
		c.over.offer, c.over.at, c.over.port = k, ln.Addr().String(), addrPort(conn.LocalAddr()).Port()
		c.over.since = time.Now().Add(-since)
		return c, k
	}

	c, k := claimed(true, 0)
	assert.False(t, c.hasClaim(other))
	assert.False(t, c.confirm(other))
	assert.Nil(t, c.over.take(other))
	assert.True(t, c.hasClaim(conn))
	assert.True(t, c.confirm(conn))
	assert.NoError(t, c.late(conn))
	assert.Equal(t, rdma.Offer(k), c.over.take(conn))
	assert.False(t, c.hasClaim(conn), "it was taken")
	c.EndClaims()
	assert.Zero(t, k.dropped)

	c, k = claimed(false, 0)
	assert.False(t, c.confirm(conn), "the listener has gone")
	c.EndClaims()
	assert.Equal(t, 1, k.dropped)

	c, k = claimed(true, 2*shmdir.AskWithin)
	assert.True(t, c.confirm(conn))
	assert.NotNil(t, c.over.take(conn))
	var not *NotSDPError
	require.ErrorAs(t, c.late(conn), &not)
	assert.True(t, not.Usable)
	assert.ErrorIs(t, not, errLate)
	assert.NoError(t, c.late(other))
	c.EndClaims()
	assert.Zero(t, k.dropped)
}
