//go:build linux

package shm

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Waking up through the kernel takes many times as long as a message through
// shared memory. So a wait looks again for a while before it parks, in two
// phases, each only while it has lately paid off:
//
//   - a few looks with nothing but PAUSE between, which catch a peer that runs on
//     another processor and answers at once;
//   - steps of some 100 ns of PAUSE and a Gosched, for the other goroutines of
//     this process, and now and then a sched_yield, for the other threads of the
//     machine: the peer itself may be waiting for this very processor.
const (
	pureLooks  = 64
	pureLeast  = -4 // the score below which the pure phase is left out
	pureMost   = 16
	steps      = 100                   // about 40 µs, if nobody else wants the processor
	stepPauses = 2                     // PAUSEs in each
	stepYield  = 4                     // every so manyth yields to the machine
	yieldLong  = 20 * time.Microsecond // a yield of so long: the processor is wanted
	spinShort  = 60 * time.Microsecond // a parked wait as short as this would rather have spun
	spinLeast  = 3                     // the score at which a wait spins at first,
	spinMost   = 256                   // and at most, when attempts keep failing
)

// spinners is how many goroutines of this process are in the second phase. Few
// may: the others leave the processors to whoever works.
var spinners atomic.Int32

// spinner decides how one way waits. It belongs to the waiting goroutine; the
// zero value is ready to use.
type spinner struct {
	pure  int // pure phases that paid, less those that did not
	score int // short waits, less twice the long ones
	need  int // the score at which to spin; 0: spinLeast
}

// spin looks again and again, and reports whether look has returned true. came
// says whether that is what the peer has sent: to be woken by a goroutine of this
// process neither speaks for spinning nor against it.
func (s *spinner) spin(look, came func() bool) bool {
	if s.pure > pureLeast {
		for range pureLooks {
			if look() {
				if came() {
					s.pure = min(s.pure+1, pureMost)
				}
				return true
			}
			pause(1)
		}
		s.pure--
	}
	if s.score < max(s.need, spinLeast) {
		return false
	}
	if spinners.Add(1) > 1 {
		spinners.Add(-1)
		return false
	}
	found, wanted := false, false
	for i := 1; i <= steps && !found && !wanted; i++ {
		pause(stepPauses)
		if i%stepYield == 0 {
			wanted = yield()
		} else {
			runtime.Gosched()
		}
		found = look()
	}
	spinners.Add(-1)
	switch {
	case found && !wanted && came():
		s.need /= 2
		s.pure = min(s.pure+1, 0) // the pure phase is worth another try
	case !found || wanted:
		s.score = 0
		s.need = min(max(2*s.need, spinLeast), spinMost)
	}
	return found
}

// yield lets others have the processor, and reports that they wanted it: it has
// been away for longer than any peer that runs would take. Who parks is woken in
// front of them, who spins waits behind them.
func yield() bool {
	begin := time.Now()
	unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	return time.Since(begin) > yieldLong
}

// parked tells how long a wait was that has parked.
func (s *spinner) parked(d time.Duration) {
	if d <= spinShort {
		s.score = min(s.score+1, spinMost)
	} else {
		s.score = max(s.score-2, 0)
	}
}
