//go:build linux

package spin

import "time"

const (
	// roomTime is for how long to poll for room. A peer takes 30 µs to copy half a ring to its
	// program if the ring is in its caches, and some 100 µs otherwise.
	roomTime  = 200 * time.Microsecond
	roomYield = 16 // one look in this many comes after a yield to the machine
	mostVain  = 64 // calls without a look after one in vain, at most
)

// Room decides whether to poll for the room that a peer makes by reading. It does as long as that
// pays: each time in vain doubles the number of calls until the next attempt. It belongs to the
// goroutine that waits. The zero value is ready to use.
type Room struct {
	rest, vain uint8 // calls to come without a look; how many the last attempt in vain has led to
	off        bool
	backlog    Backlog
}

// SetBusyPoll disables polling if d is negative. It must be called before the first Spin.
func (r *Room) SetBusyPoll(d time.Duration) { r.off = d < 0 }

// Spin polls, and reports whether look has returned true. Yielding as often as a Waiter would slow a
// stream down. Not yielding would slow down a stream in both directions, where the peer's reading
// goroutine needs this very processor.
func (r *Room) Spin(look func() bool) bool {
	if r.off {
		return false
	}
	if r.rest > 0 {
		r.rest--
		return false
	}
	limit, ok := process.begin(&process.rooms, roomTime, 0)
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
