package handshake

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// keptOffer is a channel whose server accepts the connection after so many looks.
type keptOffer struct {
	rdma.Offer
	looks   int // negative: never
	ends    bool
	dropped int
}

func (k *keptOffer) Claim(uint16) bool { return true }
func (k *keptOffer) Drop()             { k.dropped++ }

func (k *keptOffer) Claimed() (accepted, over bool) {
	k.looks--
	accepted = k.looks == -1
	return accepted, accepted || k.ends
}

// TestClaimOverChannel: a Request is sent only on the connection that was claimed, if the server has
// accepted that, and in time.
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
	claimed := func(k *keptOffer, since time.Duration) *Client {
		c := &Client{Config: &Config{Logger: slog.New(slog.DiscardHandler)}, Redials: true}
		c.claims = new(shmdir.Claims)
		c.over = &overChannel{
			offer: k, claimed: true, over: true,
			at: ln.Addr().String(), port: addrPort(conn.LocalAddr()).Port(), since: time.Now().Add(-since),
		}
		return c
	}
	usable := func(c *Client, why error) {
		t.Helper()
		var not *NotSDPError
		require.ErrorAs(t, c.late(conn), &not)
		assert.True(t, not.Usable)
		assert.ErrorIs(t, not, why)
		assert.Equal(t, why.Error(), c.declined.Of(wire.DeviceSHM))
	}

	t.Run("another connection", func(t *testing.T) {
		k := &keptOffer{looks: -1}
		c := claimed(k, -time.Hour)
		assert.False(t, c.hasClaim(other))
		assert.False(t, c.confirm(other))
		assert.NoError(t, c.late(other))
		c.EndClaims()
		assert.Equal(t, 1, k.dropped)
		c.EndClaims()
		assert.Equal(t, 1, k.dropped)
	})
	t.Run("accepted", func(t *testing.T) {
		k := &keptOffer{looks: 3}
		c := claimed(k, -time.Hour)
		require.True(t, c.hasClaim(conn))
		require.True(t, c.confirm(conn))
		assert.Equal(t, rdma.Offer(k), c.over.take(conn))
		assert.Nil(t, c.over.take(conn))
		assert.NoError(t, c.late(conn))
		assert.Equal(t, -1, k.looks)
		c.EndClaims()
		assert.Zero(t, k.dropped)
	})
	t.Run("not accepted", func(t *testing.T) {
		c := claimed(&keptOffer{looks: -1}, 2*shmdir.AskWithin)
		require.True(t, c.confirm(conn))
		usable(c, errNotAccepted)
	})
	t.Run("the server has gone", func(t *testing.T) {
		c := claimed(&keptOffer{looks: -1, ends: true}, -time.Hour)
		require.True(t, c.confirm(conn))
		usable(c, errNotAccepted)
	})
	t.Run("a server that may be asked", func(t *testing.T) {
		for _, k := range []*keptOffer{{looks: -1}, {looks: -1, ends: true}} {
			c := claimed(k, -time.Hour)
			c.MayAsk = func(_, _ netip.Addr) bool { return true }
			require.True(t, c.confirm(conn))
			assert.NoError(t, c.late(conn), "it may be another one behind the address")
			assert.False(t, c.confirmed)
		}
	})
	t.Run("late", func(t *testing.T) {
		c := claimed(&keptOffer{}, 2*shmdir.AskWithin)
		require.True(t, c.confirm(conn))
		usable(c, errLate)
	})
	t.Run("a server that takes no claims", func(t *testing.T) {
		k := new(keptOffer)
		c := claimed(k, -time.Hour)
		c.over.claimed = false
		assert.False(t, c.hasClaim(conn))
		assert.Equal(t, rdma.Offer(k), c.over.take(conn), "the channel serves the connection nevertheless")
		assert.NoError(t, c.late(conn))
	})
	t.Run("the hook of an attempt that is over", func(t *testing.T) {
		c := &Client{Config: &Config{}}
		c.over = &overChannel{cfg: c.Config}
		c.EndClaims()
		assert.False(t, c.over.claim(nil, ln.Addr().String()))
	})
}

// hearing is a listener whose clients have claimed every connection.
type hearing struct {
	rdma.ClaimListener
	rdma.Claim
}

func (h *hearing) Claimed(netip.AddrPort) rdma.Claim { return h }

// remote is a connection of another host's.
type remote struct{ *net.TCPConn }

func (remote) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 4711} }

// TestClaimedSilently: a connection that has sent something else than a Request, or is closed, is not the
// one that was claimed.
func TestClaimedSilently(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	s := NewServer(Config{})
	s.listeners.open = map[wire.Device]rdma.ChannelListener{wire.DeviceSHM: new(hearing)}
	for spoke, held := range map[verdict]bool{undecided: true, isMPA: true, isPlain: false} {
		h := &Incoming{Server: s, conn: remote{c.(*net.TCPConn)}, spoke: spoke}
		assert.Equal(t, held, h.claimed() != nil, "%v", spoke)
	}
}
