package lookout

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	lookTime = 300 * time.Microsecond // for a process to wake up and to answer
	lookLong = 100 * time.Microsecond // a yield of so long: the processor is wanted
)

// For calls there until it says true, for 300 µs at most, and gives the processor
// to others between two calls; only once while looking does not pay. It reports
// what the last call said.
func (h *Habit) For(there func() bool) bool {
	if there() {
		return true
	}
	if !h.may() {
		return false
	}
	found := false
	for begin, now := time.Now(), time.Now(); !found && now.Sub(begin) < lookTime; {
		unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		found = there()
		last := now
		if now = time.Now(); now.Sub(last) > lookLong {
			break
		}
	}
	h.looked(found)
	return found
}
