package engine

import (
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
)

// epoch is the zero of clock.
var epoch = time.Now()

// clock returns the time since epoch. A time.Duration is a third of the size of a time.Time.
func clock() time.Duration { return time.Since(epoch) }

// deadline is the time at which the calls of one direction fail. Guarded by Conn.mu. The
// calls check only expired, which does not read the clock. A nil deadline was never set.
type deadline struct {
	at      time.Time // zero: none
	expired bool
	inside  bool        // timer was made in a bubble of testing/synctest
	timer   *time.Timer // nil: none is needed
	conn    *Conn
}

// passed reports whether the deadline was set and has passed.
func (d *deadline) passed() bool { return d != nil && d.expired }

// stop clears the deadline.
func (d *deadline) stop() {
	if d != nil {
		d.set(time.Time{})
	}
}

// fire is called by a timer, *by, which need not be the present one, and locks mu, which guards by's target.
func (d *deadline) fire(by **time.Timer) {
	d.conn.mu.Lock()
	defer d.conn.mu.Unlock()
	// The timer of an earlier deadline may have fired while this one was set.
	if d.at.IsZero() || d.expired || *by != d.timer {
		return
	}
	if left := time.Until(d.at); left > 0 {
		d.timer.Reset(left) // the timer was an earlier deadline's
		return
	}
	d.expired = true
	d.conn.poll.wakeAllLocked()
}

// set moves the deadline, and reports whether it has passed.
func (d *deadline) set(t time.Time) (passed bool) {
	d.at, d.expired = t, false
	if d.timer != nil {
		// The runtime ends a program that uses a timer of a bubble outside it, and such a timer keeps
		// the clock of its own bubble.
		inside := bubble.Inside()
		if d.inside == inside {
			d.timer.Stop()
		}
		if d.inside || inside {
			d.timer = nil
		}
	}
	if t.IsZero() {
		return false
	}
	now := time.Now()
	left := t.Sub(now)
	d.at = now.Add(left) // by the monotonic clock, as in package net: a step of the other one does not move it
	switch {
	case left <= 0:
		d.expired = true
	case d.timer == nil:
		var timer *time.Timer
		timer = time.AfterFunc(left, func() { d.fire(&timer) })
		d.timer, d.inside = timer, bubble.Inside()
	default:
		d.timer.Reset(left)
	}
	return d.expired
}

// setDeadline moves one of the deadlines of c. It is allocated when it is first set, because
// most connections have none.
func (c *Conn) setDeadline(d **deadline, t time.Time) error {
	c.mu.Lock()
	if c.phase.closed() {
		c.mu.Unlock()
		return localOnly(c.opError("set", errClosed))
	}
	defer c.mu.Unlock()
	if *d == nil && !t.IsZero() {
		*d = &deadline{conn: c}
	}
	if *d != nil && (*d).set(t) {
		c.poll.wakeAllLocked()
	}
	return nil
}
