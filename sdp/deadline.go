package sdp

import (
	"time"
)

// epoch is where the process's clock begins: a time on it takes a third of what a
// time.Time does.
var epoch = time.Now()

// clock is the time since epoch.
func clock() time.Duration { return time.Since(epoch) }

// deadline is the time at which one direction's calls fail. Guarded by Conn.mu.
// The calls themselves look only at expired, which costs no clock. A nil deadline
// has never been set.
type deadline struct {
	at      time.Time // zero: none
	expired bool
	timer   *time.Timer
	conn    *conn
}

// passed reports that the deadline was set, and is over.
func (d *deadline) passed() bool { return d != nil && d.expired }

// stop takes the deadline away.
func (d *deadline) stop() {
	if d != nil {
		d.set(time.Time{})
	}
}

// fire is what the timer calls.
func (d *deadline) fire() {
	d.conn.mu.Lock()
	defer d.conn.mu.Unlock()
	// The timer of an earlier deadline may have fired while this one was set.
	if d.at.IsZero() || d.expired {
		return
	}
	if left := time.Until(d.at); left > 0 {
		d.timer.Reset(left) // of the present one, or the clock was set back
		return
	}
	d.expired = true
	d.conn.noAppends()
	d.conn.wakeAll()
}

// set moves the deadline, and reports whether it has passed.
func (d *deadline) set(t time.Time) (passed bool) {
	d.at, d.expired = t, false
	if d.timer != nil {
		d.timer.Stop()
	}
	if t.IsZero() {
		return false
	}
	left := time.Until(t)
	switch {
	case left <= 0:
		d.expired = true
	case d.timer == nil:
		d.timer = time.AfterFunc(left, d.fire)
	default:
		d.timer.Reset(left)
	}
	return d.expired
}

// setDeadline moves a deadline of c, which it makes when there is none: most
// connections get along without.
func (c *conn) setDeadline(d **deadline, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("set", errClosed)
	}
	if *d == nil && !t.IsZero() {
		*d = &deadline{conn: c}
	}
	if *d != nil && (*d).set(t) {
		c.noAppends()
		c.wakeAll()
	}
	return nil
}
