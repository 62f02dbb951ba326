package bubble

import (
	"time"

	"golang.org/x/sys/unix"
)

// Sleep waits by the machine's clock, even in a synctest bubble, where time.Sleep ends
// only when every goroutine of the bubble is blocked. Short times are waited for in the
// kernel, because the runtime's timers may round them up to a millisecond.
func Sleep(d time.Duration) {
	if d >= time.Millisecond && !Inside() {
		time.Sleep(d)
		return
	}
	t := unix.NsecToTimespec(int64(d))
	unix.Nanosleep(&t, nil)
}
