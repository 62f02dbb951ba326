package harness

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// sleep waits for d. It blocks a thread, because Go's timers round times below a
// millisecond up to one. By default the kernel wakes a thread up to 50 µs late. That is
// changed only for the pause, because the contenders are measured with the default.
func sleep(d time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	defer unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // the default
	left := unix.NsecToTimespec(d.Nanoseconds())
	for unix.Nanosleep(&left, &left) == unix.EINTR {
	}
}
