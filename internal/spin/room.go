//go:build linux

package spin

import "time"

const (
	// roomTime is for how long to look for room. A peer that copies half a ring to its
	// program takes 30 µs while the ring is in its caches, and some 100 when it is not.
	roomTime  = 200 * time.Microsecond
	roomYield = 16 // every so manyth look comes after a yield to the machine
	mostVain  = 64 // calls without a look after one in vain, at most
)

// Room decides whether to look for the room that a peer makes by reading: while looking
// pays. Each time in vain doubles the number of calls until the next attempt. It belongs to
// the goroutine that waits; its zero value is ready to use.
type Room struct {
	rest, vain uint8 // calls still to come without a look; and how many the last look in vain has led to
	off        bool
	backlog    Backlog
}

// SetBusyPoll has no call look if d is negative. Before the first Spin.
func (r *Room) SetBusyPoll(d time.Duration) { r.off = d < 0 }

// Spin looks again and again, and reports whether look has returned true. To yield as often
// as a Waiter does would slow a stream down; not to yield would slow down one that goes both
// ways, where the peer's reading goroutine needs this very processor.
func (r *Room) Spin(look func() bool) bool {
	if r.off {
		return false
	}
	if r.rest > 0 {
		r.rest--
		return false
	}
	limit, ok := process.begin(&process.rooms, roomTime)
	if !ok {
		return false
	}
	s := stepper{now: Clock()}
	begin, asked := s.now, s.now
	found, unpolled := false, r.backlog.Stays()
	for i := 1; !found && !unpolled && !s.wanted && s.now-begin < limit; i++ {
		Pause(stepPauses)
		if i%roomYield == 0 {
			s.yield(schedYield)
		}
		if found = look(); !found && s.now-asked > chainTime {
			asked = s.now
			unpolled = r.backlog.Stays()
		}
	}
	spent := s.now - begin - s.away
	switch {
	case found && !s.wanted:
		r.vain = 0
		spent = max(0, spent-woken.both())
	case !unpolled:
		r.vain = min(max(2*r.vain, 1), mostVain)
		r.rest = r.vain
	}
	process.end(&process.rooms, spent)
	return found
}
