package lookout

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lookTime = 300 * time.Microsecond // for a process to wake up and to answer
	lookLong = 600 * time.Microsecond // a yield of so long gave somebody else a turn of his own

	lookGosched = 16 // every so manyth yield is to this process too
)

// For calls there until it is over, for 300 µs at most, and gives the processor to
// others between two calls; only once while looking does not pay, or while another
// goroutine of this process looks out. worth says whether what ended it is what it
// was for.
func (h *Habit) For(there func() (over, worth bool)) {
	if over, _ := there(); over || !h.may() || !alone() {
		return
	}
	defer leave()
	turns := 0
	for begin, now := time.Now(), time.Now(); now.Sub(begin) < lookTime; {
		if turns++; turns%lookGosched == 0 {
			runtime.Gosched()
		}
		unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		over, worth := there()
		last := now
		now = time.Now()
		if long := now.Sub(last) > lookLong; over || long {
			// What came in a long yield would have come without looking.
			h.looked(worth && !long)
			return
		}
	}
	h.looked(false)
}
