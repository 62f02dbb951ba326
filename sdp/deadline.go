package sdp

import (
	"time"
)

// deadline is the time at which one direction's calls fail. Guarded by Conn.mu.
// The calls themselves look only at expired, which costs no clock.
type deadline struct {
	at      time.Time // zero: none
	expired bool
	timer   *time.Timer
	conn    *Conn
}

// init prepares d, a field of c.
func (d *deadline) init(c *Conn) { d.conn = c }

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

func (c *Conn) setDeadline(d *deadline, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("set", errClosed)
	}
	if d.set(t) {
		c.wakeAll()
	}
	return nil
}
