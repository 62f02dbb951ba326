//go:build linux

package shm

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/rdma"
)

var client = netip.MustParseAddr("10.1.2.3")

func peerOf(port uint16) rdma.Peer { return rdma.Peer{Remote: netip.AddrPortFrom(client, port)} }

// state is what has become of a claim.
func state(i *idle) string {
	switch accepted, over := i.Claimed(); {
	case accepted:
		return "accepted"
	case over:
		return "over"
	}
	return "made"
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
	p := newPlace(t)
	kept := keptFrom(t, p, peerOf(1))
	assert.Nil(t, p.Claimed(peerOf(7).Remote), "nothing is claimed yet")
	for port := uint16(7); port < 10; port++ { // the channel serves connection after connection
		require.True(t, kept.Claim(port))
		assert.False(t, kept.Claim(port), "it has a claim")
		assert.Equal(t, "made", state(kept))
		assert.Nil(t, p.Claimed(peerOf(port+1).Remote), "another port")
		assert.Nil(t, p.Claimed(netip.AddrPortFrom(client.Next(), port)), "another address")
		c := p.Claimed(peerOf(port).Remote)
		require.NotNil(t, c)
		assert.Nil(t, p.Claimed(peerOf(port).Remote), "it has had its connection")
		assert.Equal(t, "accepted", state(kept))
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
	assert.Equal(t, "over", state(kept), "this use has no claim yet")
	kept.Drop()
}

// TestNoClaims: a server takes none if it does not know the client's address, and none are answered
// after it has ended.
func TestNoClaims(t *testing.T) {
	t.Run("no address", func(t *testing.T) {
		emptied(t)
		p := newPlace(t)
		kept := keptFrom(t, p, rdma.Peer{})
		assert.False(t, kept.Claim(7))
		assert.Nil(t, p.Claimed(peerOf(7).Remote))
		kept.Drop()
	})
	t.Run("any more", func(t *testing.T) {
		emptied(t)
		p := newPlace(t)
		kept := keptFrom(t, p, peerOf(1))
		p.TakeClaims(false)
		assert.False(t, kept.Claim(7))
		kept.Drop()
		kept = keptFrom(t, p, peerOf(1))
		assert.False(t, kept.Claim(7))
		kept.Drop()
		p.TakeClaims(true)
		kept = keptFrom(t, p, peerOf(1))
		assert.True(t, kept.Claim(7), "it does again")
		kept.Drop()
	})
	for name, end := range map[string]func(p *place){
		"closed": func(p *place) { p.Close() },
		"killed": func(p *place) { hangUp(p.links.links[0].conn) },
	} {
		t.Run(name, func(t *testing.T) {
			emptied(t)
			p := newPlace(t)
			kept := keptFrom(t, p, peerOf(1))
			require.True(t, kept.Claim(7))
			end(p)
			assert.Equal(t, "over", state(kept))
			kept.Drop()
		})
	}
}

// TestClaimedChannelIsKept: a channel does not go while a client relies on it.
func TestClaimedChannelIsKept(t *testing.T) {
	t.Run("in time", func(t *testing.T) {
		emptied(t)
		p := newPlace(t)
		kept := keptFrom(t, p, peerOf(1))
		require.True(t, kept.Claim(7))
		begin := time.Now()
		for time.Since(begin) < linkTime+shmdir.AskWithin {
			require.Equal(t, "made", state(kept), "after %v", time.Since(begin))
			time.Sleep(linkTime / 20)
		}
		assert.Eventually(t, func() bool { return p.keeps() == 0 }, 5*linkTime, linkTime/20, "it is kept for ever")
		assert.Equal(t, "over", state(kept))
		kept.Drop()
	})
	t.Run("among many", func(t *testing.T) {
		emptied(t)
		p := newPlace(t)
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
		assert.Equal(t, "made", state(kept))
		assert.NotNil(t, p.Claimed(peerOf(7).Remote))
		kept.Drop()
	})
}

// TestRequestThatDoesNotCome: the listener waits for a while, and not for a client that has given up.
func TestRequestThatDoesNotCome(t *testing.T) {
	accepted := func(t *testing.T) (*place, *idle, rdma.Claim) {
		emptied(t)
		p := newPlace(t)
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
