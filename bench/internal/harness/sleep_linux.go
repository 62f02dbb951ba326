package harness

import (
	"time"

	"golang.org/x/sys/unix"
)

// sleep waits for d. It blocks a thread, because Go's timers round times below a
// millisecond up to one.
func sleep(d time.Duration) {
	left := unix.NsecToTimespec(d.Nanoseconds())
	for unix.Nanosleep(&left, &left) == unix.EINTR {
	}
}
