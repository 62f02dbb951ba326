package spin

import (
	"runtime"
	"time"
)

const (
	lookTime = 300 * time.Microsecond // enough for a process to wake up and answer
	lookLong = 600 * time.Microsecond // a yield of this length gave another thread a turn of its own

	lookCost = 150 * time.Microsecond // not charged if it found something: a dial wakes both processes twice

	lookGosched = 16 // every so many yields, one is to this process too
)

// For calls there until it reports over, for at most 300 µs, and yields the processor between calls.
// It calls there only once if polling does not pay at present, or if the budget of the process is
// used up. worth reports whether the end was the one that was waited for.
func (h *Habit) For(there func() (over, worth bool)) {
	if over, _ := there(); over || !h.may() {
		return
	}
	limit, ok := process.begin(&process.looks, lookTime)
	if !ok {
		return
	}
	begin := Clock()
	var spent time.Duration // without the time of other threads
	found := false
	defer func() {
		if found {
			spent = max(0, spent-lookCost)
		}
		process.end(&process.looks, spent)
		h.looked(found)
	}()
	for turns, now := 1, begin; now-begin < limit; turns++ {
		if turns%lookGosched == 0 {
			runtime.Gosched()
		}
		last := now
		schedYield()
		over, worth := there()
		now = Clock()
		spent += min(now-last, yieldShort)
		if long := now-last > lookLong; over || long {
			found = worth && !long // after a long yield, it would have arrived without polling
			return
		}
	}
}
