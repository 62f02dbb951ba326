package harness

import (
	"time"

	"golang.org/x/sys/unix"
)

// sleep waits for d. A thread waits, because Go's own timers round what is shorter than
// a millisecond up to one.
func sleep(d time.Duration) {
	left := unix.NsecToTimespec(d.Nanoseconds())
	for unix.Nanosleep(&left, &left) == unix.EINTR {
	}
}
