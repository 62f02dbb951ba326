package sdp

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// DialContext connects to the address on the named network, as [Dial] does. Once it has
// returned, ctx does not affect the connection.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	e := DialEvent{Network: network, Address: address}
	measured := setups.measured.Load()
	var start time.Time
	if measured {
		start = time.Now()
	}
	c, err := d.dialContext(ctx, &e)
	if e.Err = err; measured {
		e.Duration = time.Since(start)
		setups.measure(e)
	}
	setups.count(e)
	return c, err
}

// Setups are statistics about connection set-up. The counters only grow.
type Setups struct {
	// Devices counts the connections that were opened, dialled or accepted, by the device with which they
	// began: "tcp" if that may move to shared memory.
	Devices map[string]uint64
	// Plain counts the Dials that returned a connection of package net, by reason, and PlainAccepts
	// the Accepts that returned what the underlying listener has accepted. Failed counts the Dials that
	// returned an error.
	Plain, PlainAccepts map[PlainReason]uint64
	Failed              uint64
	// DialTimes has the durations of Dials that returned a [*Conn], and PlainTimes
	// of those that returned a connection of package net, if they ended while [MeasureDials] was on.
	DialTimes, PlainTimes Histogram
}

// A PlainReason says why a Dial or an Accept returned a connection that is not of this library; see [Setups].
type PlainReason uint8

const (
	PlainOther       PlainReason = iota // not a TCP socket
	PlainHost                           // the peer is on another host or in another network namespace, and may not be asked
	PlainPeer                           // the peer does not speak SDP: a server that was asked, or a client that may ask
	PlainSetupFailed                    // the peer speaks SDP, but the handshake failed or no device works
	PlainRule                           // a rule in the file that SDP_CONFIG names says TCP
	PlainOff                            // Config.Devices or SDP_DEVICES switches SDP off
	PlainNoDevice                       // both ends are on one host, and shared memory may not or cannot be used

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
	case PlainNoDevice:
		return "no_device"
	}
	return "other"
}

// sentence returns the reason in the form in which logs have it.
func (r PlainReason) sentence() string {
	switch r {
	case PlainPeer:
		return "peer does not speak SDP"
	case PlainHost:
		return "peer is on another host or in another network namespace"
	case PlainSetupFailed:
		return "SDP set-up failed"
	case PlainRule:
		return "rule says TCP"
	case PlainOff:
		return "SDP_DEVICES or Config.Devices says TCP"
	case PlainNoDevice:
		return "shared memory may not or cannot be used, and both ends are on one host"
	}
	return "not a TCP socket"
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

// MeasureDials switches the measurement of how long Dials take on or off, for [SetupStats]. It is off at
// first. While it is on, a Dial reads the clock twice. MeasureDials is safe for concurrent use.
func MeasureDials(on bool) {
	setups.mu.Lock()
	defer setups.mu.Unlock()
	setups.asked = on
	setups.switchLocked()
}

// A DialEvent describes a Dial that has returned.
type DialEvent struct {
	Network, Address string // as the program gave them
	Duration         time.Duration
	Device           string      // "" if the connection is one of package net, or Err is not nil
	Plain            PlainReason // why the connection is one of package net, if Device is "" and Err is nil
	Cause            error       // of that: how the handshake ended; nil if there was none
	Err              error
}

// why returns why the connection is one of package net.
func (e *DialEvent) why() string {
	if e.Cause != nil {
		return e.Cause.Error()
	}
	return e.Plain.sentence()
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
	s := Setups{
		Plain:        setups.plainDials.table(),
		PlainAccepts: setups.plainAccepts.table(),
		Failed:       setups.failed.Load(),
	}
	setups.mu.Lock()
	s.DialTimes, s.PlainTimes = setups.dialTimes.histogram(), setups.plainTimes.histogram()
	setups.mu.Unlock()
	openConns.mu.Lock()
	s.Devices = openConns.byDevice.table()
	openConns.mu.Unlock()
	return s
}

// setups are those of this process.
var setups setupCounter

type setupCounter struct {
	plainDials, plainAccepts plainCounts
	failed                   atomic.Uint64
	measured                 atomic.Bool // asked, or there are observers

	mu                    sync.Mutex
	asked                 bool
	observers             []*func(DialEvent) // replaced, never changed
	dialTimes, plainTimes times
}

func (s *setupCounter) switchLocked() { s.measured.Store(s.asked || len(s.observers) > 0) }

// count counts a Dial.
func (s *setupCounter) count(e DialEvent) {
	switch {
	case e.Err != nil:
		s.failed.Add(1)
	case e.Device == "":
		s.plainDials[e.Plain].Add(1)
	}
}

// measure adds the duration of a Dial, and calls the observers.
func (s *setupCounter) measure(e DialEvent) {
	s.mu.Lock()
	switch {
	case e.Err != nil:
	case e.Device != "":
		s.dialTimes.add(e.Duration)
	default:
		s.plainTimes.add(e.Duration)
	}
	observers := s.observers
	s.mu.Unlock()
	for _, f := range observers {
		(*f)(e)
	}
}

// plainCounts counts plain connections by reason.
type plainCounts [plainReasons]atomic.Uint64

// table has 0 too: a monitor does not notice the first event of a new series.
func (p *plainCounts) table() map[PlainReason]uint64 {
	t := make(map[PlainReason]uint64, plainReasons)
	for reason := range p {
		t[PlainReason(reason)] = p[reason].Load()
	}
	return t
}

// names returns the counts that are not 0 by the names of the reasons.
func (p *plainCounts) names() map[string]uint64 {
	t := make(map[string]uint64)
	for reason := range p {
		if n := p[reason].Load(); n > 0 {
			t[PlainReason(reason).String()] = n
		}
	}
	return t
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
