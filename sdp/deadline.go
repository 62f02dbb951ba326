package sdp

import "time"

// epoch is the zero of clock.
var epoch = time.Now()

// clock returns the time since epoch. A time.Duration is a third of the size of a time.Time.
func clock() time.Duration { return time.Since(epoch) }

// deadline is the time at which the calls of one direction fail. Guarded by conn.mu. The
// calls check only expired, which does not read the clock. A nil deadline was never set.
type deadline struct {
	at      time.Time // zero: none
	expired bool
	timer   *time.Timer
	conn    *conn
}

// passed reports whether the deadline was set and has passed.
func (d *deadline) passed() bool { return d != nil && d.expired }

// pending reports whether the deadline was set.
func (d *deadline) pending() bool { return d != nil && !d.at.IsZero() }

// stop clears the deadline.
func (d *deadline) stop() {
	if d != nil {
		d.set(time.Time{})
	}
}

// fire is called by the timer.
func (d *deadline) fire() {
	d.conn.mu.Lock()
	defer d.conn.mu.Unlock()
	// The timer of an earlier deadline may have fired while this one was set.
	if d.at.IsZero() || d.expired {
		return
	}
	if left := time.Until(d.at); left > 0 {
		d.timer.Reset(left) // the timer was an earlier deadline's, or the clock was set back
		return
	}
	d.expired = true
	d.conn.appends.stop()
	d.conn.poll.wakeAllLocked()
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

// setDeadline moves one of the deadlines of c. It is allocated when it is first set, because
// most connections have none.
func (c *conn) setDeadline(d **deadline, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return localOnly(c.opError("set", errClosed))
	}
	if *d == nil && !t.IsZero() {
		*d = &deadline{conn: c}
	}
	if *d != nil && (*d).set(t) {
		c.appends.stop()
		c.poll.wakeAllLocked()
	}
	return nil
}
