package handshake

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/timing"
)

// maxPeers bounds how many addresses are remembered.
const maxPeers = 4096

// Remember notes that the server at the other end of conn speaks plain TCP, if err is evidence of
// that. An answer in another protocol, or a close, is remembered for PlainTTL, and silence for
// timing.Silence. Silence during a wait that the context shortened is not remembered.
func (c *Client) Remember(conn net.Conn, err error) {
	ttl := c.PlainTTL
	var not *NotSDPError
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if errors.As(err, &not) && not.waited < c.ReplyTimeout {
			return
		}
		ttl = min(ttl, timing.Silence)
	}
	peers.remember(addrPort(conn.RemoteAddr()), ttl)
}

// peerTable remembers which addresses of other hosts speak plain TCP, so that they are not
// asked again. The zero value is ready to use. It is safe for concurrent use.
type peerTable struct {
	mu      sync.Mutex
	until   map[netip.AddrPort]time.Time
	watched map[netip.AddrPort]bool // addresses with a connection that watch observes
}

// peers is shared by all clients of the process.
var peers peerTable

// plain reports whether the address is known to speak plain TCP.
func (t *peerTable) plain(a netip.AddrPort) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	until, ok := t.until[a]
	return ok && time.Now().Before(until)
}

// remember makes plain return true until ttl is over. In a full table the entry that would
// expire first is dropped.
func (t *peerTable) remember(a netip.AddrPort, ttl time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.until == nil {
		t.until = make(map[netip.AddrPort]time.Time)
	}
	if _, there := t.until[a]; !there && len(t.until) >= maxPeers {
		t.dropFirstLocked()
	}
	t.until[a] = time.Now().Add(ttl)
}

func (t *peerTable) dropFirstLocked() {
	var first netip.AddrPort
	for a, until := range t.until {
		if !first.IsValid() || until.Before(t.until[first]) {
			first = a
		}
	}
	delete(t.until, first)
}

// maxWatched limits how many connections watch observes. Each takes a descriptor.
const maxWatched = 64

// watch observes a connection that is plain TCP only because its address is remembered. If
// the server closes it before it has sent a byte, the server may have become one that speaks
// only SDP, so the address is forgotten. The program may close the connection at any time.
// There is one such connection for an address at a time, and none in a bubble.
func (t *peerTable) watch(conn net.Conn) {
	if bubble.Inside() {
		return // its test would wait for the goroutine
	}
	a := addrPort(conn.RemoteAddr())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watched[a] || len(t.watched) >= maxWatched {
		return
	}
	closedEarly, err := awaitFirst(conn, timing.Watch)
	if err != nil {
		return
	}
	if t.watched == nil {
		t.watched = make(map[netip.AddrPort]bool)
	}
	t.watched[a] = true
	go func() {
		early := closedEarly()
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.watched, a)
		if early {
			delete(t.until, a)
		}
	}()
}
