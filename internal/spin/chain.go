//go:build linux

package spin

import (
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A goroutine that goes from one wait to the next without parking keeps its P from polling
// the network. If another P is idle, a thread sleeps in epoll_wait and takes what comes. If
// none is, the events stay with the kernel, and every chainTime the goroutine looks whether
// some do. One look that finds some proves little, because the thread may be on its way;
// after a second one the wait parks. It may do so in vain, where processors take longer to
// wake up, or for events of its own connection.
const (
	chainTime  = 30 * time.Microsecond // between two looks at the network,
	chainAgain = 20 * time.Microsecond // and after one that has found events
	chainWaits = 4                     // waits between two looks at the clock
	chainYield = 8                     // looks at the network between two yields to the process
)

// goOn reports whether the next wait may look for anything, or is to park.
func (w *Waiter) goOn() bool {
	w.chain++
	if w.chain < chainWaits {
		return true
	}
	looks := w.looks
	ok := w.mayGoOn(Clock())
	// Goroutines that are ready to run wait for a P too, but to yield wakes a thread up.
	if w.looks != looks && (w.looks%chainYield == 0 || runtime.GOMAXPROCS(0) == 1) {
		yield()
	}
	return ok
}

// mayGoOn reports whether the waits may go on without parking.
func (w *Waiter) mayGoOn(now time.Duration) bool {
	w.chain = 0
	due := chainTime
	if w.backlog {
		due = chainAgain
	}
	if now-w.since <= due {
		return true
	}
	w.since = now
	w.looks++
	return !w.backlog.Stays()
}

// Stayed tells of a wait that was about to park and has not, because something came. Whether
// the network is polled is as unknown as before, so the next wait asks again.
func (w *Waiter) Stayed() {
	w.chain = chainWaits - 1
	woken.forget(w)
}

// yield lets other goroutines run. Tests replace it.
var yield = runtime.Gosched

// Backlog is whether the last look at the network has found events. A wait that has no
// Waiter has one of its own.
type Backlog bool

// Stays looks, and reports whether there are events as there were the last time: nobody
// takes them.
func (b *Backlog) Stays() bool {
	before := *b
	*b = Backlog(pending())
	return bool(before && *b)
}

// pending reports whether the kernel has events for the runtime's poller. Tests replace it.
var pending = func() bool {
	p := unix.PollFd{Fd: int32(netpoller()), Events: unix.POLLIN}
	if p.Fd <= 0 {
		return true // perhaps
	}
	var now unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return errno == 0 && n > 0
}

const mostPollers = 4096 // descriptors among which the runtime's is looked for

// poller is the descriptor of the runtime's epoll instance; 0: not looked for, which is
// the descriptor of something else in any case; -1: not found.
var poller atomic.Int32

// netpoller returns poller.
func netpoller() int {
	fd := poller.Load()
	if fd == 0 {
		fd = int32(findNetpoller())
		poller.Store(fd)
	}
	return int(fd)
}

// findNetpoller finds the runtime's epoll instance: the one that knows a descriptor which
// the runtime has just been given, because only there can what is waited for on that one be
// changed. To all other instances this does nothing. It returns 0 if it could not look.
func findNetpoller() int {
	known, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return 0
	}
	f := os.NewFile(uintptr(known), "eventfd")
	defer f.Close()
	if f.SetDeadline(time.Time{}) != nil { // the runtime does not poll it
		return -1
	}
	for fd := range mostPollers {
		if unix.EpollCtl(fd, unix.EPOLL_CTL_MOD, known, &unix.EpollEvent{}) == nil {
			return fd
		}
	}
	return -1
}
