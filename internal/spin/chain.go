//go:build linux

package spin

import (
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A goroutine that goes from one wait to the next without parking keeps its P from polling
// the network. If another P is idle, a thread of that one sleeps in epoll_wait and takes
// what comes. If none is, the events stay with the kernel, and every chainTime the
// goroutine looks whether some do. One look that finds some proves little, because the
// thread may be on its way; after a second one the wait parks.
const (
	chainTime  = 30 * time.Microsecond // between two looks at the network,
	chainAgain = 20 * time.Microsecond // and after one that has found events
	chainWaits = 4                     // waits between two looks at the clock
	chainYield = 8                     // looks at the network between two yields to the process
)

// mayGoOn reports whether the waits may go on without parking.
func (w *Waiter) mayGoOn(now time.Duration) bool {
	w.chain = 0
	due := chainTime
	if w.behind {
		due = chainAgain
	}
	if now-w.since <= due {
		return true
	}
	w.since = now
	// Goroutines that are ready to run wait for a P too, but to yield wakes a thread up.
	if w.looks++; w.looks%chainYield == 0 || runtime.GOMAXPROCS(0) == 1 {
		runtime.Gosched()
	}
	before := w.behind
	w.behind = pending()
	return !w.behind || !before
}

// pending reports whether the kernel has events for the runtime's poller. Tests replace it.
var pending = func() bool {
	p := unix.PollFd{Fd: int32(netpoller()), Events: unix.POLLIN}
	if p.Fd < 0 {
		return true // perhaps
	}
	var now unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return errno == 0 && n > 0
}

const mostPollers = 4096 // descriptors among which the runtime's is looked for

// netpoller returns the descriptor of the runtime's epoll instance, -1 if it is not found.
// It is the one that knows a descriptor which the runtime has just been given: only there
// can what is waited for on that one be changed. To all other instances this does nothing.
var netpoller = sync.OnceValue(func() int {
	known, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1
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
})
