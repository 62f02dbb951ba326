package sdp

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/localpeer"
)

// approach is how a Dial on network tcp goes on from a connection.
type approach uint8

const (
	plain      approach = iota // nothing is sent
	recognised                 // the other end is on this host, and a listener of SDP
	probed                     // the other end is on another host, and may be asked
	announced                  // the other end is in another container, and a listener of SDP
	gone                       // a listener of SDP has closed it already
)

// approach finds out whether SDP is worth offering on c, which nobody has used yet. On
// this host the kernel tells what the other end is. Others are asked if they may be, and
// if they have not shown that they speak plain TCP.
func (a *attempt) approach(c net.Conn) approach {
	how := a.approaching(c)
	if how == plain {
		a.unmark(c) // or a listener might wait for a Request
		a.endClaims()
	}
	return how
}

func (a *attempt) approaching(c net.Conn) approach {
	local, remote := addrPort(c.LocalAddr()).Addr().Unmap(), addrPort(c.RemoteAddr()).Addr().Unmap()
	other, err := localpeer.Other(c)
	if err == nil && other.Listener && a.mayMeet(other) {
		if visible(c) {
			return recognised
		}
		other, err = localpeer.Other(c) // it may have been closed meanwhile
	}
	switch {
	case err == nil:
		return plain
	case errors.Is(err, localpeer.ErrElsewhere) && onThisHost(c):
		if _, err := localpeer.Own(c); other.Listener && errors.Is(err, localpeer.ErrElsewhere) {
			return gone
		}
		return plain // something is between us
	case !peers.plain(addrPort(c.RemoteAddr())) && a.confirm(c):
		return announced
	case a.devices.mayAsk(local, remote) && !peers.plain(addrPort(c.RemoteAddr())):
		return probed
	}
	return plain
}

// visible reports that the listener sees that we are about to send a Request. It does not
// if the socket could not be marked, as one of multipath TCP.
func visible(c net.Conn) bool {
	own, err := localpeer.Own(c)
	return err == nil && own.Dialler
}

// mayMeet reports that a device may connect us with the other end.
func (a *attempt) mayMeet(other localpeer.End) bool {
	if len(a.devices.usable) > 1 || a.devices.usable[0].String() != "shm" || !other.Owned {
		return true
	}
	return int(other.UID) == os.Geteuid() || slices.Contains(a.cfg.PeerUIDs, int(other.UID))
}

func (a *attempt) unmark(c net.Conn) {
	if sc, ok := c.(syscall.Conn); ok {
		if rc, err := sc.SyscallConn(); err == nil {
			localpeer.Unmark(rc, localpeer.Dialler)
		}
	}
}

// wasReset reports that the connection was reset, or closed, before there was an answer.
func wasReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// heldUp reports that the peer may do better when it is asked again.
func heldUp(err error) bool {
	var not *NotSDPError
	return errors.As(err, &not) && (errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ECONNRESET))
}

const (
	// silenceTTL is how long silence is remembered.
	silenceTTL = 5 * time.Second
	// maxPeers bounds how many addresses are remembered.
	maxPeers = 4096
)

// remember notes that the address of c speaks plain TCP, as far as err is evidence:
// another answer, or a close, is; silence is for seconds; silence for less than the time
// that a peer may take is none.
func (a *attempt) remember(c net.Conn, err error) {
	ttl := a.cfg.PlainTTL
	var not *NotSDPError
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if errors.As(err, &not) && not.waited < a.cfg.ReplyTimeout {
			return
		}
		ttl = min(ttl, silenceTTL)
	}
	peers.remember(addrPort(c.RemoteAddr()), ttl)
}

// peerTable remembers which peers on other hosts speak plain TCP, so that they are not
// asked again. Its zero value is ready to use, and safe for concurrent use.
type peerTable struct {
	mu    sync.Mutex
	until map[netip.AddrPort]time.Time
}

// peers is shared by all Dialers, since the peers are.
var peers peerTable

// plain reports that the peer is known to speak plain TCP.
func (t *peerTable) plain(a netip.AddrPort) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	until, ok := t.until[a]
	return ok && time.Now().Before(until)
}

// remember has plain return true for as long as ttl. In a full table the answer goes
// that would have gone first.
func (t *peerTable) remember(a netip.AddrPort, ttl time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.until == nil {
		t.until = make(map[netip.AddrPort]time.Time)
	}
	if _, there := t.until[a]; !there && len(t.until) >= maxPeers {
		t.dropFirst()
	}
	t.until[a] = time.Now().Add(ttl)
}

func (t *peerTable) dropFirst() {
	var first netip.AddrPort
	for a, until := range t.until {
		if !first.IsValid() || until.Before(t.until[first]) {
			first = a
		}
	}
	delete(t.until, first)
}
