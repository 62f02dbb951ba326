//go:build linux

package shm

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/rdma"
)

var client = netip.MustParseAddr("10.1.2.3")

// peerOf is the peer on a connection that nothing translates.
func peerOf(port uint16) rdma.Peer {
	return rdma.Peer{Direct: true, Remote: netip.AddrPortFrom(client, port)}
}

// claimPlace returns a place that is alone as long as the flag says so.
func claimPlace(t *testing.T) (*place, *atomic.Bool) {
	alone := new(atomic.Bool)
	alone.Store(true)
	cfg := stepConfig
	cfg.Alone = alone.Load
	l, err := device{}.Listen(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l.(*place), alone
}

// keptFrom returns the offer of a channel that has served a connection of the peer.
func keptFrom(t *testing.T, p *place, peer rdma.Peer) *idle {
	t.Helper()
	a, b, err := open(t.Context(), p, newOffer(t, "here", stepConfig), peer)
	require.NoError(t, err)
	closed(t, a, b)
	kept := device{}.Idle("here", stepConfig)
	require.NotNil(t, kept)
	return kept.(*idle)
}

func (p *place) keeps() int {
	p.links.mu.Lock()
	defer p.links.mu.Unlock()
	return len(p.links.links)
}

func TestClaim(t *testing.T) {
	emptied(t)
	p, _ := claimPlace(t)
	kept := keptFrom(t, p, peerOf(1))
	assert.Nil(t, p.Claimed(peerOf(7).Remote), "nothing is claimed yet")
	for port := uint16(7); port < 10; port++ { // the channel serves connection after connection
		require.True(t, kept.Claim(port))
		assert.True(t, kept.Stands())
		assert.Nil(t, p.Claimed(peerOf(port+1).Remote), "another port")
		assert.Nil(t, p.Claimed(netip.AddrPortFrom(client.Next(), port)), "another address")
		c := p.Claimed(peerOf(port).Remote)
		require.NotNil(t, c)
		assert.Nil(t, p.Claimed(peerOf(port).Remote), "it has had its connection")
		assert.True(t, kept.Stands())
		assert.True(t, c.Expected())
		c.Release(true)

		b, err := p.Resume(peerOf(port), kept.Ticket(), 1)
		require.NoError(t, err)
		a, err := kept.Take(1)
		require.NoError(t, err)
		says(t, a.(*QueuePair), b.(*QueuePair), "hello")
		assert.Nil(t, p.Claimed(peerOf(port).Remote), "the channel is in use")
		closed(t, a.(*QueuePair), b.(*QueuePair))
		kept = device{}.Idle("here", stepConfig).(*idle)
	}
	assert.False(t, kept.Stands(), "this use has no claim yet")
	kept.Drop()
}

// TestNoClaims: the listener takes none if a connection from that port might come to another process,
// or if the port is not the client's own.
func TestNoClaims(t *testing.T) {
	for name, peer := range map[string]rdma.Peer{
		"an address is translated": {Remote: peerOf(1).Remote},
		"no address":               {Direct: true},
	} {
		t.Run(name, func(t *testing.T) {
			emptied(t)
			p, _ := claimPlace(t)
			kept := keptFrom(t, p, peer)
			assert.False(t, kept.Claim(7))
			assert.Nil(t, p.Claimed(peerOf(7).Remote))
			kept.Drop()
		})
	}
	t.Run("not known", func(t *testing.T) {
		emptied(t)
		kept := keptFrom(t, newPlace(t), peerOf(1))
		assert.False(t, kept.Claim(7))
		kept.Drop()
	})
	t.Run("shared", func(t *testing.T) {
		emptied(t)
		p, alone := claimPlace(t)
		alone.Store(false)
		kept := keptFrom(t, p, peerOf(1))
		assert.False(t, kept.Claim(7))
		kept.Drop()
	})
	t.Run("shared since", func(t *testing.T) {
		emptied(t)
		p, _ := claimPlace(t)
		kept := keptFrom(t, p, peerOf(1))
		p.RefuseClaims()
		assert.False(t, kept.Claim(7))
		kept.Drop()
	})
	t.Run("shared after the claim", func(t *testing.T) {
		emptied(t)
		p, _ := claimPlace(t)
		kept := keptFrom(t, p, peerOf(1))
		require.True(t, kept.Claim(7))
		p.RefuseClaims()
		assert.False(t, kept.Stands())
		assert.Nil(t, p.Claimed(peerOf(7).Remote))
		kept.Drop()
	})
	t.Run("shared after the connection", func(t *testing.T) {
		emptied(t)
		p, _ := claimPlace(t)
		kept := keptFrom(t, p, peerOf(1))
		require.True(t, kept.Claim(7))
		require.NotNil(t, p.Claimed(peerOf(7).Remote))
		p.RefuseClaims()
		assert.True(t, kept.Stands())
		kept.Drop()
	})
	t.Run("killed", func(t *testing.T) {
		emptied(t)
		p, _ := claimPlace(t)
		kept := keptFrom(t, p, peerOf(1))
		require.True(t, kept.Claim(7))
		hangUp(p.links.links[0].conn)
		assert.False(t, kept.Stands())
		kept.Drop()
	})
	t.Run("closed", func(t *testing.T) {
		emptied(t)
		p, _ := claimPlace(t)
		kept := keptFrom(t, p, peerOf(1))
		require.True(t, kept.Claim(7))
		p.Close()
		assert.False(t, kept.Stands())
		kept.Drop()
	})
}

// TestClaimedChannelIsKept: a channel does not go while a client relies on it.
func TestClaimedChannelIsKept(t *testing.T) {
	t.Run("in time", func(t *testing.T) {
		emptied(t)
		p, _ := claimPlace(t)
		kept := keptFrom(t, p, peerOf(1))
		require.True(t, kept.Claim(7))
		begin := time.Now()
		for time.Since(begin) < linkTime+shmdir.AskWithin {
			require.True(t, kept.Stands(), "after %v", time.Since(begin))
			time.Sleep(linkTime / 20)
		}
		assert.Eventually(t, func() bool { return p.keeps() == 0 }, 5*linkTime, linkTime/20, "it is kept for ever")
		assert.False(t, kept.Stands())
		kept.Drop()
	})
	t.Run("among many", func(t *testing.T) {
		emptied(t)
		p, _ := claimPlace(t)
		kept := keptFrom(t, p, peerOf(1))
		require.True(t, kept.Claim(7))
		var ends [][2]*QueuePair
		for i := range mostLinks + 1 {
			a, b, err := open(t.Context(), p, newOffer(t, fmt.Sprint(i), stepConfig), peerOf(2))
			require.NoError(t, err)
			ends = append(ends, [2]*QueuePair{a, b})
		}
		for _, end := range ends {
			closed(t, end[0], end[1])
		}
		assert.Equal(t, mostLinks, p.keeps())
		assert.True(t, kept.Stands())
		assert.NotNil(t, p.Claimed(peerOf(7).Remote))
		kept.Drop()
	})
}

// TestRequestThatDoesNotCome: the listener waits for a while, and not for a client that has given up.
func TestRequestThatDoesNotCome(t *testing.T) {
	accepted := func(t *testing.T) (*place, *idle, rdma.Claim) {
		emptied(t)
		p, _ := claimPlace(t)
		kept := keptFrom(t, p, peerOf(1))
		require.True(t, kept.Claim(7))
		c := p.Claimed(peerOf(7).Remote)
		require.NotNil(t, c)
		return p, kept, c
	}
	t.Run("late", func(t *testing.T) {
		p, kept, c := accepted(t)
		begin := time.Now()
		for c.Expected() {
			time.Sleep(shmdir.LookTime)
		}
		assert.GreaterOrEqual(t, time.Since(begin), shmdir.AskWithin)
		assert.Less(t, time.Since(begin), 5*shmdir.HoldTime)
		assert.Zero(t, p.keeps())
		assert.False(t, kept.Stands())
		kept.Drop()
	})
	t.Run("never", func(t *testing.T) {
		p, kept, c := accepted(t)
		kept.Drop()
		assert.False(t, c.Expected())
		assert.Zero(t, p.keeps())
	})
	t.Run("released", func(t *testing.T) {
		p, kept, c := accepted(t)
		c.Release(false)
		assert.Zero(t, p.keeps())
		assert.False(t, c.Expected())
		kept.Drop()
	})
	t.Run("another connection took the channel", func(t *testing.T) {
		p, kept, c := accepted(t)
		b, err := p.Resume(peerOf(8), kept.Ticket(), 1)
		require.NoError(t, err)
		assert.False(t, c.Expected())
		b.Abort()
		kept.Drop()
	})
}
