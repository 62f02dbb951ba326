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
//	server  leaves the channel, and is ready for a claim
//	client  binds its socket, claims the port, and connects
//	server  accepts a connection from that port of the client's address, and says so
//	client  sees that, and sends its Request
//
// Each end changes the word only from the state that the other one has left. A peer may write
// anything. It can only claim connections from the address that it connected from, and each waits for
// shmdir.HoldTime.

// The states of the word, in its low bits. The claimed port is above.
const (
	claimNone     = iota // the server is not ready, or has given up the channel
	claimReady           // the server is ready for a claim
	claimMade            // by the client
	claimAccepted        // by the server: it has accepted the connection

	claimPort = 2 // bits below the port
)

func claimOf(port uint16, state uint32) uint32 { return uint32(port)<<claimPort | state }

// takeClaims makes the end that listens ready for a claim, or not.
func (l *link) takeClaims(may bool) {
	switch {
	case l.way == 0:
	case may && l.from.IsValid():
		l.area.ctl.claim.Store(claimReady)
	default:
		l.area.ctl.claim.Store(claimNone)
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

// Claimed reports what has become of the claim; see rdma.Claimer.
func (i *idle) Claimed() (accepted, over bool) {
	switch i.link.area.ctl.claim.Load() {
	case claimOf(i.port, claimAccepted):
		return true, true
	case claimOf(i.port, claimMade):
		return false, !i.link.alive()
	}
	return false, true
}

// TakeClaims makes the place take claims, or none; see rdma.ClaimListener.
func (p *place) TakeClaims(may bool) {
	p.links.mu.Lock()
	defer p.links.mu.Unlock()
	p.links.refuses = !may
	if may {
		return
	}
	for _, l := range p.links.links {
		l.unclaimed()
	}
}

// claimed is a claim on a connection that was accepted.
type claimed struct {
	pool  *pool
	link  *link
	since time.Time
}

// Claimed answers the claim on a connection from there; see rdma.ClaimListener.
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
