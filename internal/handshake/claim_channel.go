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
	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// If a channel to a server of another container is kept from an earlier connection, the client
// claims the next connection over the channel, and not in the directory: neither end sends a
// message, and the client prepares its Request while the server accepts.

// overChannel is such a claim, of one connection attempt, which may try several addresses at the
// same time. One of them is claimed. A hook that runs when the attempt is over does nothing. It is
// safe for concurrent use.
type overChannel struct {
	cfg *Config

	mu      sync.Mutex
	over    bool         // no connection is claimed any more
	offer   rdma.Claimer // nil: no channel was kept
	taken   bool         // the caller of take owns the channel
	at      string       // the server's address
	claimed bool         // the server has the claim; false: it takes none
	port    uint16       // ours
	since   time.Time
}

// claim claims the connection of the socket rc to the address, and binds the socket. It returns
// false if no channel is kept for that, or the server takes no claim over it.
func (o *overChannel) claim(rc syscall.RawConn, address string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return false
	}
	t, _ := transport(wire.DeviceSHM)
	offerer, ok := t.(rdma.Offerer)
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil || unanswered.plain(at) {
		return false
	}
	dir := o.cfg.Dir.Path()
	kept := offerer.Idle(keptFor("tcp", address, dir), o.cfg.channelConfig(offerer, dir))
	if kept == nil {
		return false
	}
	if o.offer, ok = kept.(rdma.Claimer); !ok {
		kept.Drop()
		return false
	}
	o.over, o.at = true, address
	o.port, err = shmdir.Bind(rc, at)
	o.since = time.Now()
	o.claimed = err == nil && o.offer.Claim(o.port)
	return o.claimed
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

// on reports whether conn was claimed.
func (o *overChannel) on(conn net.Conn) bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.claimed && o.port == addrPort(conn.LocalAddr()).Port() && o.at == conn.RemoteAddr().String()
}

// take returns the channel, which the caller then owns, if it was kept for the address at the
// other end of conn; nil: there is none.
func (o *overChannel) take(conn net.Conn) rdma.Offer {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.offer == nil || o.taken || o.at != conn.RemoteAddr().String() {
		return nil
	}
	o.taken = true
	return o.offer
}

// drop ends the claim with its channel, unless that was taken.
func (o *overChannel) drop() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	if o.offer != nil && !o.taken {
		o.offer.Drop()
		o.taken = true
	}
}

var (
	errNotAccepted = errors.New("no confirmation that the server accepted the connection")
	errLate        = fmt.Errorf("claim over the channel expired after %v", shmdir.AskWithin)
)

// unanswered remembers the servers that have not accepted a connection which was claimed over a channel.
// Several may listen at the address, each of which accepts some of the connections (SO_REUSEPORT). For
// shmdir.VainTimes as long as a client has waited, connections are claimed in the directory alone.
var unanswered peerTable

// acceptances is the habit of polling for servers that accept a connection.
var acceptances spin.Habit

// await waits until the server has accepted the connection that was claimed, or only polls if it is not
// patient. It returns an error if the Request may not be sent for the claim. The owner of the
// channel calls it.
func (o *overChannel) await(patient bool) error {
	begin := time.Now()
	accepted, over := false, false
	look := func() (bool, bool) {
		accepted, over = o.offer.Claimed()
		return over, accepted
	}
	for acceptances.For(look); patient && !over && time.Since(o.since) < shmdir.AskWithin; look() {
		time.Sleep(shmdir.LookTime)
	}
	switch {
	case !accepted:
		if at, err := netip.ParseAddrPort(o.at); err == nil {
			unanswered.remember(at, shmdir.VainTimes*time.Since(begin))
		}
		return errNotAccepted
	case time.Since(o.since) > shmdir.AskWithin:
		return errLate
	}
	return nil
}
