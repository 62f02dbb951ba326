package iwarp

import (
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lookTime = 300 * time.Microsecond // for a process to wake up and to answer
	lookLong = 20 * time.Microsecond  // a yield of so long: the processor is wanted
	lookRest = 256                    // dials that do not look, at most, after looking in vain
)

// looking says whether dials look for their Reply before they park: while that
// pays. Each time in vain doubles the number of dials until the next attempt.
var looking struct {
	mu         sync.Mutex
	rest, vain int
}

func mayLook() bool {
	l := &looking
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rest > 0 {
		l.rest--
		return false
	}
	return true
}

func looked(found bool) {
	l := &looking
	l.mu.Lock()
	defer l.mu.Unlock()
	if found {
		l.vain = 0
		return
	}
	l.vain = min(max(2*l.vain, 1), lookRest)
	l.rest = l.vain
}

// lookForReply returns when there is something to read on c, or it is better to
// park.
func lookForReply(c net.Conn) {
	sc, ok := c.(syscall.Conn)
	if !ok || !mayLook() {
		return
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return
	}
	if spinners.Add(1) > 1 {
		spinners.Add(-1)
		return
	}
	defer spinners.Add(-1)
	found := false
	var p [1]unix.PollFd
	rc.Control(func(fd uintptr) {
		for begin, now := time.Now(), time.Now(); now.Sub(begin) < lookTime; {
			// To read, if only to peek, would take an error that the reader is to see.
			p[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
			if n, err := unix.Poll(p[:], 0); n > 0 && err == nil {
				found = true
				return
			}
			runtime.Gosched()
			unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			last := now
			if now = time.Now(); now.Sub(last) > lookLong {
				return
			}
		}
	})
	looked(found)
}
