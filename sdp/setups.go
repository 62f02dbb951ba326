package sdp

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/rules"
)

// DialContext connects to the address on the named network, as [Dial] does. Once it has
// returned, ctx does not affect the connection.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if !setups.measured.Load() {
		c, _, err := d.dialContext(ctx, network, address)
		return c, err
	}
	start := time.Now()
	c, why, err := d.dialContext(ctx, network, address)
	e := DialEvent{Duration: time.Since(start), Err: err}
	if up, ok := c.(*Conn); err == nil && ok {
		e.Device = up.Device()
	} else if err == nil {
		e.Plain = d.Config.plainReason(network, c, why)
	}
	setups.dialled(e)
	return c, err
}

// Setups are statistics about connection set-up. The counters only grow.
type Setups struct {
	// Devices counts the connections that were opened, dialled or accepted, by the device with which they
	// began: "tcp" if that may move to shared memory.
	Devices map[string]uint64
	// Plain counts the Dials that returned a connection of package net, by reason. Failed counts those that
	// returned an error. Both, and the times below, count Dials that ended while
	// [MeasureDials] was on.
	Plain  map[PlainReason]uint64
	Failed uint64
	// DialTimes has the durations of Dials that returned a [*Conn], and PlainTimes
	// of those that returned a connection of package net.
	DialTimes, PlainTimes Histogram
}

// A PlainReason says why a Dial returned a connection that is not of this library; see [Setups].
type PlainReason uint8

const (
	PlainOther       PlainReason = iota // not a TCP connection
	PlainHost                           // the peer is on another host or in another network namespace, and was not asked
	PlainPeer                           // the peer was asked, and does not speak SDP
	PlainSetupFailed                    // the peer speaks SDP, but the handshake failed or no device works
	PlainRule                           // a rule in the file that SDP_CONFIG names says TCP
	PlainOff                            // Config.Devices or SDP_DEVICES switches SDP off

	plainReasons = iota
)

// String returns the reason in the form in which metrics show it, such as "plain_peer".
func (r PlainReason) String() string {
	switch r {
	case PlainPeer:
		return "plain_peer"
	case PlainHost:
		return "other_host"
	case PlainSetupFailed:
		return "setup_failed"
	case PlainRule:
		return "rule"
	case PlainOff:
		return "off"
	}
	return "other"
}

// MarshalText implements [encoding.TextMarshaler], so that JSON has the reason's name.
func (r PlainReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// A Histogram counts durations.
type Histogram struct {
	Count uint64
	Sum   time.Duration
	// Buckets are in ascending order of UpTo. Durations above the last one are in Count only.
	// The slice is the caller's own.
	Buckets []Bucket
}

// A Bucket counts the durations that are at most UpTo, including those of earlier Buckets.
type Bucket struct {
	UpTo  time.Duration
	Count uint64
}

// timeBounds are the upper bounds of the buckets of all Histograms.
var timeBounds = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	100 * time.Millisecond, 500 * time.Millisecond, time.Second, 5 * time.Second,
}

// times counts durations by the first bucket that has room for them.
type times struct {
	count uint64
	sum   time.Duration
	first [len(timeBounds)]uint64
}

func (t *times) add(d time.Duration) {
	t.count++
	t.sum += d
	for i, bound := range timeBounds {
		if d <= bound {
			t.first[i]++
			return
		}
	}
}

func (t *times) histogram() Histogram {
	h := Histogram{Count: t.count, Sum: t.sum, Buckets: make([]Bucket, len(timeBounds))}
	n := uint64(0)
	for i, bound := range timeBounds {
		n += t.first[i]
		h.Buckets[i] = Bucket{bound, n}
	}
	return h
}

// MeasureDials switches the measurement of Dials on or off, for [SetupStats]. It is off at
// first. While it is on, a Dial reads the clock twice, and a Dial that returns plain TCP makes
// one more system call, which finds out why. MeasureDials is safe for concurrent use.
func MeasureDials(on bool) {
	setups.mu.Lock()
	defer setups.mu.Unlock()
	setups.asked = on
	setups.switchLocked()
}

// A DialEvent describes a Dial that has returned.
type DialEvent struct {
	Duration time.Duration
	Device   string      // "" if there is no SDP connection
	Plain    PlainReason // why the connection is plain TCP, if Device is "" and Err is nil
	Err      error
}

// OnDial calls f after each Dial, in the goroutine of the Dial, until remove is called. f must
// not block. Dials are measured as by [MeasureDials] while there is such a function. OnDial is
// safe for concurrent use.
func OnDial(f func(DialEvent)) (remove func()) {
	setups.mu.Lock()
	defer setups.mu.Unlock()
	added := &f
	setups.observers = append(slices.Clone(setups.observers), added)
	setups.switchLocked()
	return func() {
		setups.mu.Lock()
		defer setups.mu.Unlock()
		setups.observers = slices.DeleteFunc(slices.Clone(setups.observers), func(o *func(DialEvent)) bool { return o == added })
		setups.switchLocked()
	}
}

// SetupStats returns statistics about the set-up of connections in this process. It is safe
// for concurrent use.
func SetupStats() Setups {
	setups.mu.Lock()
	s := Setups{
		Plain:      make(map[PlainReason]uint64),
		Failed:     setups.failed,
		DialTimes:  setups.dialTimes.histogram(),
		PlainTimes: setups.plainTimes.histogram(),
	}
	for reason, n := range setups.plain { // 0 too: a monitor does not notice the first event of a new series
		s.Plain[PlainReason(reason)] = n
	}
	setups.mu.Unlock()
	openConns.mu.Lock()
	s.Devices = openConns.byDevice.table()
	openConns.mu.Unlock()
	return s
}

// setups are those of this process.
var setups setupCounter

type setupCounter struct {
	measured atomic.Bool // asked, or there are observers

	mu                    sync.Mutex
	asked                 bool
	observers             []*func(DialEvent) // replaced, never changed
	plain                 [plainReasons]uint64
	failed                uint64
	dialTimes, plainTimes times
}

func (s *setupCounter) switchLocked() { s.measured.Store(s.asked || len(s.observers) > 0) }

// dialled counts a Dial.
func (s *setupCounter) dialled(e DialEvent) {
	s.mu.Lock()
	switch {
	case e.Err != nil:
		s.failed++
	case e.Device != "":
		s.dialTimes.add(e.Duration)
	default:
		s.plainTimes.add(e.Duration)
		s.plain[e.Plain]++
	}
	observers := s.observers
	s.mu.Unlock()
	for _, f := range observers {
		(*f)(e)
	}
}

// plainReason says why a connection that was dialled is plain TCP. asked is how the last attempt at a
// handshake ended; nil: there was none.
func (c *Config) plainReason(network string, conn net.Conn, asked error) PlainReason {
	if n, err := parseNetwork(network); err == nil {
		if r := c.ruleAt(n, rules.Client, conn.RemoteAddr()); r != nil && r.Use == rules.TCP {
			return PlainRule
		}
	}
	if c.off() {
		return PlainOff
	}
	return plainReason(conn, asked)
}

func plainReason(c net.Conn, asked error) PlainReason {
	var not *handshake.NotSDPError
	switch _, tcp := c.(*net.TCPConn); {
	case !tcp:
		return PlainOther
	case asked == nil:
		return PlainHost
	case errors.As(asked, &not) && !not.Usable:
		return PlainPeer
	}
	return PlainSetupFailed
}

// deviceCounts counts by device. There are few devices, so a search costs less than a map.
type deviceCounts []deviceCount

type deviceCount struct {
	device string
	n      uint64
}

func (d *deviceCounts) add(device string) {
	for i := range *d {
		if (*d)[i].device == device {
			(*d)[i].n++
			return
		}
	}
	*d = append(*d, deviceCount{device, 1})
}

func (d deviceCounts) table() map[string]uint64 {
	t := make(map[string]uint64, len(d))
	for _, one := range d {
		t[one.device] = one.n
	}
	return t
}
