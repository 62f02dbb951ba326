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

// A goroutine that goes from one wait to the next without parking prevents its P from polling the
// network. If another P is idle, a thread sleeps in epoll_wait and takes the events. If none is, the
// events stay in the kernel, so the goroutine looks for them every chainTime. Finding some once
// proves little, because that thread may be about to take them. After the second time in a row, the
// wait parks. That may be unnecessary, if processors take longer to wake up. It usually is if the
// wait is for a socket, whose own events are found: such a wait looks less often.
const (
	chainTime  = 30 * time.Microsecond  // between two looks at the network
	chainAgain = 20 * time.Microsecond  // the same, after a look that found events
	chainOwn   = 150 * time.Microsecond // the same, if the wait's own events are among those
	chainWaits = 4                      // waits between two looks at the clock
	chainYield = 8                      // looks at the network between two yields to the process
	chainCosts = 64                     // the time between two looks is at least this multiple of what one takes
)

// lookTakes is what a look at the network takes, in ns: much where system calls are slow, as under
// an emulator.
var lookTakes atomic.Int64

// goOn reports whether the next wait may poll: memory, or a socket that the runtime polls. If not, it
// must park.
func (w *Waiter) goOn(memory bool) bool {
	w.chain++
	if w.chain < chainWaits {
		return true
	}
	looks := w.looks
	ok := w.mayGoOn(memory, Clock())
	// Goroutines that are ready to run also wait for a P. But yielding to them wakes a thread.
	if w.looks != looks && (w.looks%chainYield == 0 || runtime.GOMAXPROCS(0) == 1 || w.yieldDue(w.since)) {
		w.yielded = w.since
		yield()
	}
	return ok
}

// mayGoOn reports whether the waits may continue without parking.
func (w *Waiter) mayGoOn(memory bool, now time.Duration) bool {
	w.chain = 0
	due := max(chainTime, chainCosts*time.Duration(lookTakes.Load()))
	switch {
	case !memory:
		due = max(chainOwn, due)
	case bool(w.backlog):
		due = chainAgain
	}
	if passed := now - w.since; 0 <= passed && passed <= due {
		return true
	}
	w.since = now
	w.looks++
	begin := Clock()
	ok := !w.backlog.Stays()
	// What took much longer than before was the time of another thread.
	before := lookTakes.Load()
	took := min(max(0, int64(Clock()-begin)), 2*before+1000)
	lookTakes.Store(before + (took-before)/4)
	return ok
}

// yieldDue reports whether a wait whose time the program has set must yield to the process.
func (w *Waiter) yieldDue(now time.Duration) bool {
	return w.busy > 0 && now-w.yielded > yieldLatest
}

// yield lets other goroutines run. Tests replace it.
var yield = runtime.Gosched

// Backlog is whether the last look at the network found events. A wait without a Waiter has its own
// Backlog.
type Backlog bool

// Stays looks, and reports whether there are events as there were the last time: no thread takes
// them.
func (b *Backlog) Stays() bool {
	before := *b
	*b = Backlog(pending())
	return bool(before && *b)
}

// pending reports whether the kernel has events for the runtime's poller. Tests replace it.
var pending = func() bool {
	p := unix.PollFd{Fd: int32(netpoller()), Events: unix.POLLIN}
	if p.Fd <= 0 {
		return true // unknown
	}
	var now unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return errno == 0 && n > 0
}

const mostPollers = 4096 // descriptors among which to look for that of the runtime

// poller is the descriptor of the runtime's epoll instance. 0 means that the search for it has not
// happened, because descriptor 0 is never that instance, and -1 that it was not found.
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

// findNetpoller finds the runtime's epoll instance: it is the only one that knows a descriptor which
// was just given to the runtime, so only there EPOLL_CTL_MOD succeeds for that descriptor. It has no
// effect on others. findNetpoller returns 0 if it could not look.
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
