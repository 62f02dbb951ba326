package spin

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lookTime = 300 * time.Microsecond // for a process to wake up and to answer
	lookLong = 600 * time.Microsecond // a yield of so long gave somebody else a turn of his own

	lookCost = 150 * time.Microsecond // what a look that has found something has free: a dial wakes both processes twice

	lookGosched = 16 // every so manyth yield is to this process too
)

// For calls there until it is over, for 300 µs at most, and gives the processor to others
// between two calls; only once while looking does not pay, or the budget of the process is
// used up. worth says whether what ended it is what it was for.
func (h *Habit) For(there func() (over, worth bool)) {
	if over, _ := there(); over || !h.may() {
		return
	}
	limit, ok := process.begin(&process.looks, lookTime)
	if !ok {
		return
	}
	begin := Clock()
	var spent time.Duration // without what others had of the processor
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
		unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		over, worth := there()
		now = Clock()
		spent += min(now-last, yieldShort)
		if long := now-last > lookLong; over || long {
			found = worth && !long // what came in a long yield would have come without looking
			return
		}
	}
}
