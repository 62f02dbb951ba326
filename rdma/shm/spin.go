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
//   - steps of some 100 ns of PAUSE, every few with a sched_yield, because the peer
//     itself may be waiting for this very processor. A Gosched, for the other
//     goroutines of this process, is rarer: each wakes a thread up to run what it
//     puts aside.
//
// The second phase lasts for some times what being woken takes, which is what it
// saves: a few µs where a processor changes from one thread to the next, 30 to 100
// where one must come out of its sleep in a virtual machine. Behind a request and
// its answer there is more than one wake-up, of the peer and of goroutines at both
// ends, and to spin through them at one end shortens the waits at the other. Both
// ends measure it: who wakes leaves the time at which it did so in the shared
// memory.
const (
	pureLooks   = 64
	pureLeast   = -4 // the score below which the pure phase is left out
	pureMost    = 16
	stepPauses  = 2                      // PAUSEs in each step
	stepYield   = 4                      // every so manyth yields to the machine,
	stepGosched = 16                     // and to the process
	spinShort   = 50 * time.Microsecond  // how long the second phase lasts at least,
	spinLong    = 400 * time.Microsecond // and at most,
	spinWakes   = 8                      // and otherwise for how many times what being woken takes
	yieldShort  = 1500 * time.Nanosecond // a yield of at most so long: no other thread has run
	yieldLong   = 200 * time.Microsecond // a longer one than this: the processor is wanted
	spinLeast   = 3                      // the score at which a wait spins at first,
	spinMost    = 256                    // and at most, when attempts keep failing
)

// spinners is how many goroutines of this process are in the second phase. Few
// may: the others leave the processors to whoever works.
var spinners atomic.Int32

// clock is the machine's monotonic clock, which all its processes share.
func clock() time.Duration { return sinceBoot + time.Since(epoch) }

var (
	epoch     = time.Now()
	sinceBoot = func() time.Duration {
		var now unix.Timespec
		unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
		return time.Duration(now.Nano()) - time.Since(epoch)
	}()
)

// spinner decides how one way waits. It belongs to the waiting goroutine; the
// zero value is ready to use.
type spinner struct {
	pure  int32         // pure phases that paid, less those that did not
	score int32         // short waits, less twice the long ones
	need  int32         // the score at which to spin; 0: spinLeast
	wake  time.Duration // what being woken has lately taken
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
	found, wanted, shared := false, false, false
	now := clock()
	end := now + s.limit()
	for i := 0; now < end && !found && !wanted; i++ {
		pause(stepPauses)
		switch {
		case i%stepYield == 0:
			before := clock()
			unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			now = clock()
			// Away for longer than any peer that runs would take. Who parks is
			// woken in front of whoever had the processor, who spins waits behind.
			wanted = now-before > yieldLong
			shared = now-before > yieldShort
		case i%stepGosched == stepGosched-1:
			runtime.Gosched()
		}
		found = look()
	}
	spinners.Add(-1)
	switch {
	case found && !wanted && came():
		s.need /= 2
		if !shared {
			s.pure = min(s.pure+1, 0) // the pure phase is worth another try
		}
	case !found || wanted:
		s.score = 0
		s.need = min(max(2*s.need, spinLeast), spinMost)
	}
	return found
}

// limit is how long the second phase lasts.
func (s *spinner) limit() time.Duration {
	return min(max(spinWakes*s.wake, spinShort), spinLong)
}

// parked tells of a wait that has parked, from begin to now, on the clock. The
// peer says that it rang at rang; what cannot be is not believed.
func (s *spinner) parked(begin, rang, now time.Duration) {
	if begin <= rang && rang <= now {
		s.wake += (now - rang - s.wake) / 8
	} else {
		rang = now
	}
	// A wait as short as this would rather have spun.
	if rang-begin <= s.limit() {
		s.score = min(s.score+1, spinMost)
	} else {
		s.score = max(s.score-2, 0)
	}
}
