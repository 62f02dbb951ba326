//go:build linux

package shm

import (
	"net/netip"
	"slices"
	"time"

	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/rdma"
)

// A client in another network namespace does not see who accepts its TCP connection, and the server
// does not see whether its client will send a Request. If a channel is kept from an earlier connection
// to the same address, one word of the area tells both:
//
//	server  leaves the channel, and is ready for a claim as long as it listens
//	client  binds its socket, claims the port, connects, and finds that the claim stands
//	client  sends its Request
//	server  accepts a connection from that port of the client's address, and expects the Request
//
// If the claim stands after the client has connected, the server has listened all the time, so it
// has the other end. That holds only if no other process listens at the address
// (ChannelConfig.Alone), and if nothing translates it (Peer.Direct). Each end changes the word only
// from a state that the other one may have left, so neither believes in a claim that the other
// has given up. A peer may write anything. It can only claim connections from its own address,
// and each waits for shmdir.HoldTime at most.

// The states of the word, in its low bits. The claimed port is above.
const (
	claimNone     = iota // the server is not ready, or has given up the channel
	claimReady           // the server is ready for a claim
	claimMade            // by the client
	claimAccepted        // by the server, with the connection

	claimPort = 2 // bits below the port
)

func claimOf(port uint16, state uint32) uint32 { return uint32(port)<<claimPort | state }

// fromOf returns the address from which the peer may claim connections.
func fromOf(peer *rdma.Peer) netip.Addr {
	if !peer.Direct {
		return netip.Addr{}
	}
	return peer.Remote.Addr()
}

// takeClaims makes the end that listens ready for a claim, if it is alone.
func (l *link) takeClaims(alone func() bool) {
	if l.way == 1 && l.from.IsValid() && alone != nil && alone() {
		l.area.ctl.claim.Store(claimReady)
	}
}

// unclaimed makes the end that listens take no claim, and reports whether the client has made none.
func (l *link) unclaimed() bool {
	word := &l.area.ctl.claim
	return l.way == 0 || word.CompareAndSwap(claimReady, claimNone) || word.Load() == claimNone
}

// extend keeps the first link for another linkTime, once, if its client has claimed a connection
// that is on its way. The caller must hold mu.
func (p *pool) extend() bool {
	l := p.links[0]
	if l.late || l.unclaimed() {
		return false
	}
	l.since, l.late = time.Now(), true
	p.links = append(p.links[1:], l)
	return true
}

// Claim claims the connection from the port; see rdma.Claimer.
func (i *idle) Claim(port uint16) bool {
	i.port = port
	return i.link.area.ctl.claim.CompareAndSwap(claimReady, claimOf(port, claimMade))
}

// Stands reports whether the server still listens; see rdma.Claimer. A process that was killed has left
// the word as it was.
func (i *idle) Stands() bool {
	word := i.link.area.ctl.claim.Load()
	return (word == claimOf(i.port, claimMade) || word == claimOf(i.port, claimAccepted)) && i.link.alive()
}

// claimed is a claim on a connection that was accepted.
type claimed struct {
	pool  *pool
	link  *link
	since time.Time
}

// RefuseClaims makes the links that are kept take no claim, and gives up those whose connections were
// not accepted; see rdma.ClaimListener.
func (p *place) RefuseClaims() {
	p.links.mu.Lock()
	defer p.links.mu.Unlock()
	for _, l := range p.links.links {
		word := &l.area.ctl.claim
		for was := word.Load(); was == claimReady || was%(1<<claimPort) == claimMade; was = word.Load() {
			word.CompareAndSwap(was, claimNone)
		}
	}
}

// Claimed returns the claim on a connection from there; see rdma.ClaimListener.
func (p *place) Claimed(from netip.AddrPort) rdma.Claim {
	p.links.mu.Lock()
	defer p.links.mu.Unlock()
	for _, l := range p.links.links {
		made, accepted := claimOf(from.Port(), claimMade), claimOf(from.Port(), claimAccepted)
		if l.from == from.Addr() && l.area.ctl.claim.CompareAndSwap(made, accepted) {
			return &claimed{&p.links, l, time.Now()}
		}
	}
	return nil
}

// Expected reports whether the Request may come; see rdma.Claim. A client that gives up closes the
// channel.
func (c *claimed) Expected() bool {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	i := slices.Index(c.pool.links, c.link)
	if i < 0 {
		return false
	}
	if time.Since(c.since) < shmdir.HoldTime && c.link.alive() {
		return true
	}
	c.pool.drop(i)
	return false
}

// Release ends the claim; see rdma.Claim. The Request resumes the channel.
func (c *claimed) Release(asked bool) {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if i := slices.Index(c.pool.links, c.link); i >= 0 && !asked {
		c.pool.drop(i)
	}
}
