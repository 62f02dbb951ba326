package sdp

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/internal/localpeer"
)

// DialContext connects to the address on the named network, as [Dial] does. Once it has
// returned, ctx does not affect the connection.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if !setups.observed.Load() {
		return d.dialContext(ctx, network, address)
	}
	start := time.Now()
	c, err := d.dialContext(ctx, network, address)
	setups.dialled(c, err, time.Since(start))
	return c, err
}

// Setups are statistics about connection set-up. The counters only grow.
type Setups struct {
	// Devices counts the SDP connections that were opened, dialled or accepted, by device.
	Devices map[string]uint64
	// Plain counts the Dials that returned plain TCP, by reason: [PlainPeer] and so on. Failed
	// counts those that returned an error.
	Plain  map[string]uint64
	Failed uint64
	// DialTimes has the durations of Dials that returned an SDP connection, and PlainTimes
	// of those that returned plain TCP.
	DialTimes, PlainTimes Histogram
}

// The reasons why a Dial returned plain TCP; see [Setups].
const (
	PlainPeer        = "plain_peer"          // the program at the other end does not serve SDP
	PlainUser        = "other_user"          // the peer is another user's program
	PlainHost        = "other_host"          // the peer is on another host or in another network namespace
	PlainBlind       = "kernel_does_not_say" // this process may not ask the kernel about the peer
	PlainSetupFailed = "setup_failed"        // the peer serves SDP, but the handshake failed or no device works
	PlainOther       = "other"               // not a TCP connection
)

// TimeBounds are the upper bounds of a Histogram's buckets, in seconds.
var TimeBounds = [...]float64{50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 500e-3, 1, 5}

// Histogram counts durations.
type Histogram struct {
	Count   uint64
	Sum     time.Duration
	Buckets [len(TimeBounds)]uint64 // cumulative: durations up to the bound
}

func (h *Histogram) add(d time.Duration) {
	h.Count++
	h.Sum += d
	for i, bound := range TimeBounds {
		if d.Seconds() <= bound {
			h.Buckets[i]++
		}
	}
}

// SetupStats returns statistics about the set-up of connections in this process. It counts
// Dials only after the first call, because counting costs a system call for each plain
// connection. It is safe for concurrent use.
func SetupStats() Setups {
	setups.observed.Store(true)
	setups.mu.Lock()
	s := setups.sum
	s.Plain = maps.Clone(s.Plain)
	setups.mu.Unlock()
	openConns.mu.Lock()
	s.Devices = maps.Clone(openConns.byDevice)
	openConns.mu.Unlock()
	return s
}

// setups are those of this process.
var setups setupCounter

type setupCounter struct {
	observed atomic.Bool
	mu       sync.Mutex
	sum      Setups
}

// dialled counts a Dial that took d.
func (s *setupCounter) dialled(c net.Conn, err error, d time.Duration) {
	reason := ""
	if _, up := c.(*Conn); err == nil && !up {
		reason = plainReason(c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.sum.Failed++
	case reason == "":
		s.sum.DialTimes.add(d)
	default:
		s.sum.PlainTimes.add(d)
		if s.sum.Plain == nil {
			s.sum.Plain = make(map[string]uint64)
		}
		s.sum.Plain[reason]++
	}
}

// plainReason says why a connection that was dialled is plain TCP, as far as its other end
// shows it.
func plainReason(c net.Conn) string {
	if _, tcp := c.(*net.TCPConn); !tcp {
		return PlainOther
	}
	other, err := localpeer.Other(c)
	switch {
	case errors.Is(err, localpeer.ErrElsewhere):
		return PlainHost
	case err != nil:
		return PlainBlind
	case !other.Listener:
		return PlainPeer
	case other.Owned && int(other.UID) != os.Geteuid():
		return PlainUser
	}
	return PlainSetupFailed
}

type deviceCounts map[string]uint64

func (d *deviceCounts) add(device string) {
	if *d == nil {
		*d = make(deviceCounts)
	}
	(*d)[device]++
}
