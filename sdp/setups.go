package sdp

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/sdp/stats"
)

// DialContext connects to the address on the named network, as [Dial] does. Once it has
// returned, ctx does not affect the connection.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	e := stats.Dial{Network: network, Address: address}
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

func (t *times) histogram() stats.Histogram {
	h := stats.Histogram{Count: t.count, Sum: t.sum, Buckets: make([]stats.Bucket, len(timeBounds))}
	n := uint64(0)
	for i, bound := range timeBounds {
		n += t.first[i]
		h.Buckets[i] = stats.Bucket{UpTo: bound, Count: n}
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

// OnDial calls f after each Dial, in the goroutine of the Dial, until remove is called. f must
// not block. Dials are measured as by [MeasureDials] while there is such a function. OnDial is
// safe for concurrent use.
func OnDial(f func(stats.Dial)) (remove func()) {
	setups.mu.Lock()
	defer setups.mu.Unlock()
	added := &f
	setups.observers = append(slices.Clone(setups.observers), added)
	setups.switchLocked()
	return func() {
		setups.mu.Lock()
		defer setups.mu.Unlock()
		setups.observers = slices.DeleteFunc(slices.Clone(setups.observers), func(o *func(stats.Dial)) bool { return o == added })
		setups.switchLocked()
	}
}

// SetupStats returns statistics about the set-up of connections in this process. It is safe
// for concurrent use.
func SetupStats() stats.Setups {
	s := stats.Setups{
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
	observers             []*func(stats.Dial) // replaced, never changed
	dialTimes, plainTimes times
}

func (s *setupCounter) switchLocked() { s.measured.Store(s.asked || len(s.observers) > 0) }

// count counts a Dial.
func (s *setupCounter) count(e stats.Dial) {
	switch {
	case e.Err != nil:
		s.failed.Add(1)
	case e.Device == "":
		s.plainDials[e.Plain].Add(1)
	}
}

// measure adds the duration of a Dial, and calls the observers.
func (s *setupCounter) measure(e stats.Dial) {
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

// plainReasons is how many reasons there are.
const plainReasons = stats.PlainNoDevice + 1

// plainCounts counts plain connections by reason.
type plainCounts [plainReasons]atomic.Uint64

// table has 0 too: a monitor does not notice the first event of a new series.
func (p *plainCounts) table() map[stats.PlainReason]uint64 {
	t := make(map[stats.PlainReason]uint64, plainReasons)
	for reason := range p {
		t[stats.PlainReason(reason)] = p[reason].Load()
	}
	return t
}

// names returns the counts that are not 0 by the names of the reasons.
func (p *plainCounts) names() map[string]uint64 {
	t := make(map[string]uint64)
	for reason := range p {
		if n := p[reason].Load(); n > 0 {
			t[stats.PlainReason(reason).String()] = n
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
