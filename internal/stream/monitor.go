//go:build linux

package stream

import (
	"maps"
	"slices"
	"time"

	"github.com/gosdp/gosdp/internal/lockorder"
	"github.com/gosdp/gosdp/internal/shm"
	"github.com/gosdp/gosdp/internal/ticker"
	"github.com/gosdp/gosdp/internal/timing"
)

// monitor visits the connections of the process that have a meeting or a segment. While there is none it has no goroutine.
var monitor visits

type visits struct {
	mu    lockorder.Mutex[lockorder.StreamMonitor]
	conns map[*Conn]*watched
	runs  bool
}

// watched is what the monitor knows of a connection.
type watched struct {
	payload uint64 // at the last visit
	since   int64  // when that changed, since epoch
	pos     uint64 // of the Reads in the ring,
	unread  int64  // and since when bytes have been unread there, and no Read in progress; 0: they are not
}

func (v *visits) add(c *Conn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.conns[c] != nil {
		return
	}
	if v.conns == nil {
		v.conns = make(map[*Conn]*watched)
	}
	v.conns[c] = &watched{since: int64(time.Since(epoch))}
	if !v.runs {
		v.runs = true
		go v.run()
	}
}

func (v *visits) run() {
	t := ticker.New()
	defer t.Stop()
	for again := true; again; again = v.visit() {
		t.Set(timing.Visit)
		t.Wait()
	}
}

// visit visits all connections once, and reports whether there are any left.
func (v *visits) visit() (again bool) {
	v.mu.Lock()
	all := make(map[*Conn]*watched, len(v.conns))
	for c, k := range v.conns {
		all[c] = k
	}
	v.mu.Unlock()
	now := int64(time.Since(epoch))
	for c, k := range all {
		if !c.visited(k, now) {
			continue
		}
		v.mu.Lock()
		delete(v.conns, c)
		v.mu.Unlock()
		if c.needsVisits() { // it has begun again meanwhile
			v.add(c)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.runs = len(v.conns) > 0; !v.runs {
		v.conns = nil // a map does not shrink
	}
	return v.runs
}

// waits returns for how long bytes have waited in the ring, and no Read has. If the program has the descriptor, it may wait
// for that to become readable.
func (l *link) waits(k *watched, now int64) int64 {
	if !l.hold() {
		return 0
	}
	defer l.drop()
	pos, unread := l.reader.ring.Position(), l.reader.ring.Head() != l.reader.ring.Position()
	if unread = unread && l.c.rmu.TryLock(); unread {
		l.c.rmu.Unlock()
	}
	switch {
	case !unread:
		k.unread = 0
		return 0
	case k.unread == 0 || k.pos != pos:
		k.unread, k.pos = now, pos
	}
	return now - k.unread
}

// LeaveAll makes all connections of the process come home, because something is short. It returns how many descriptors of
// kept segments it has closed at once. A function of a Policy must not call it.
func LeaveAll(why error) int {
	monitor.mu.Lock()
	all := slices.Collect(maps.Keys(monitor.conns))
	monitor.mu.Unlock()
	for _, c := range all {
		if l := c.linked.Load(); l != nil {
			c.why.CompareAndSwap(nil, &why)
			l.leave()
		}
	}
	return shm.Forget()
}

// Sharing returns how many connections of the process share memory, or are about to.
func Sharing() int {
	monitor.mu.Lock()
	defer monitor.mu.Unlock()
	n := 0
	for c := range monitor.conns {
		if c.linked.Load() != nil {
			n++
		}
	}
	return n
}

// needsVisits reports whether the connection has a meeting or a segment.
func (c *Conn) needsVisits() bool {
	c.stepMu.Lock()
	defer c.stepMu.Unlock()
	return c.meeting != nil || c.linked.Load() != nil
}

// visited visits a connection, and reports whether it needs no more visits.
func (c *Conn) visited(k *watched, now int64) bool {
	read, written := c.Totals()
	if payload := read + written; payload != k.payload {
		k.payload, k.since = payload, now
	}
	idle := now - k.since
	c.stepMu.Lock()
	if c.policy != nil {
		c.learnLong()
	}
	if c.meeting != nil && c.meets == 0 && idle > int64(timing.MeetTime) {
		c.meetingFailed(c.nobodyLocked())
		c.next.Store(c.score() + 1)
	}
	c.stepMu.Unlock()
	if l := c.linked.Load(); l != nil {
		if waits := l.waits(k, now); waits > 0 && c.polled.asked() {
			c.stay(errPolled)
			c.Leave()
		} else if c.policy != nil && waits > int64(timing.Idle) { // it may have found the descriptor by reflection
			c.polled.suspect()
			c.Leave()
		} else if c.policy != nil && idle > int64(timing.Idle) {
			c.why.CompareAndSwap(nil, &errIdle)
			c.Leave()
		} else if !c.Visit() && l.hold() {
			l.shrink()
			l.drop()
		}
	}
	return !c.needsVisits()
}
