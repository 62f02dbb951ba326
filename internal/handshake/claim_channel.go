package handshake

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// If a channel to a server of another container is kept from an earlier connection, the client
// claims the next connection over the channel, and not in the directory. Neither end makes a
// system call for the claim itself.

// overChannel is such a claim. A dial may try several addresses at the same time, of which one is
// claimed. The zero value is none.
type overChannel struct {
	mu    sync.Mutex
	offer rdma.Claimer // nil: there is no claim, or offerChannel has taken the channel
	at    string       // the server's address
	port  uint16       // ours
	since time.Time    // when the connection was claimed; zero: there was none
}

// claimOver claims the connection of the socket rc to the address over a channel that is kept.
// It binds the socket. It returns false if there is no such channel.
func (c *Client) claimOver(rc syscall.RawConn, address string) bool {
	o := &c.over
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.offer != nil || !c.Redials || c.stale {
		return false
	}
	t, _ := transport(wire.DeviceSHM)
	offerer, ok := t.(rdma.Offerer)
	if !ok {
		return false
	}
	kept := offerer.Idle(keptFor("tcp", address, c.Dir.Path()), c.channelConfig(offerer, c.Dir.Path()))
	if kept == nil {
		return false
	}
	offer, ok := kept.(rdma.Claimer)
	at, err := netip.ParseAddrPort(address)
	if err == nil {
		o.port, err = shmdir.Bind(rc, at)
	}
	if !ok || err != nil || !offer.Claim(o.port) {
		kept.Drop()
		return false
	}
	o.offer, o.at, o.since = offer, address, time.Now()
	return true
}

// keptFor names the channels that are kept for connections to an address, by network, and in a
// directory, if that is not "".
func keptFor(network, address, dir string) string {
	name := network + " " + address
	if dir != "" {
		name += " " + dir
	}
	return name
}

// madeLocked reports whether conn was claimed.
func (o *overChannel) madeLocked(conn net.Conn) bool {
	return !o.since.IsZero() && o.port == addrPort(conn.LocalAddr()).Port() && o.at == conn.RemoteAddr().String()
}

// on reports whether the claim is on conn, and the channel was not taken.
func (o *overChannel) on(conn net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.offer != nil && o.madeLocked(conn)
}

// errGone says that a listener has ended since the claim, or its process gave up the channel.
var errGone = errors.New("the server has given up the channel over which the connection was claimed")

// confirm returns nil if the server has the other end of the connection, and expects a Request.
func (o *overChannel) confirm() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.offer.Stands() {
		return errGone
	}
	return nil
}

// errLate says that the server may not expect the Request any more.
var errLate = fmt.Errorf("the connection was claimed over the channel more than %v ago", shmdir.AskWithin)

// late reports whether the claim on conn, if there was one, was made too long ago for a Request.
func (o *overChannel) late(conn net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.madeLocked(conn) && time.Since(o.since) > shmdir.AskWithin
}

// take returns the channel, which the caller then owns, if the claim is on conn; nil: it is not.
func (o *overChannel) take(conn net.Conn) rdma.Offer {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.offer == nil || !o.madeLocked(conn) {
		return nil
	}
	offer := o.offer
	o.offer = nil
	return offer
}

// drop ends the claim with its channel.
func (o *overChannel) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.offer != nil {
		o.offer.Drop()
		o.offer = nil
	}
	o.since = time.Time{}
}
