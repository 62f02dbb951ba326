//go:build linux

package spin

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// The phases of a wait.
const (
	// Looks is how many a wait begins with where a look is at memory.
	Looks     = 64
	pureLeast = -4 // the score below which the pure looks are left out
	pureMost  = 16

	stepPauses  = 2                      // PAUSEs in each step
	stepYield   = 4                      // every so manyth yields to the machine,
	stepGosched = 16                     // and to the process
	yieldShort  = 1500 * time.Nanosecond // a yield of at most so long: no other thread has run
	yieldLong   = 200 * time.Microsecond // a longer one than this: the processor is wanted
	shortest    = 50 * time.Microsecond  // how long the steps go on at least,
	longest     = 400 * time.Microsecond // and at most,
	wakes       = 8                      // and otherwise for how many times what being woken takes
	least       = 3                      // the score at which a wait takes steps at first,
	most        = 256                    // and at most, when attempts keep failing
)

// Off is the busy-poll time of a wait that parks at once.
const Off = -1 * time.Microsecond

// Clock is the machine's monotonic clock, which all its processes share.
func Clock() time.Duration { return sinceBoot + time.Since(epoch) }

var (
	epoch     = time.Now()
	sinceBoot = func() time.Duration {
		var now unix.Timespec
		unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
		return time.Duration(now.Nano()) - time.Since(epoch)
	}()
)

// Waiter decides how one way of a connection waits. It belongs to the waiting goroutine,
// but for SetBusyPoll; the zero value is ready to use.
type Waiter struct {
	score   int16         // short waits, less twice the long ones
	need    int16         // the score at which to take steps; 0: least
	pure    int8          // pure looks that paid, less those that did not
	chain   uint8         // waits since the clock was last read that have not parked
	looks   uint8         // at the network, modulo 256
	backlog Backlog       // as the last of those has found
	busy    busyPoll      // µs; 0: the policy decides
	wake    int32         // ns that being woken has lately taken
	since   time.Duration // when a wait last parked, or looked at the network
}

// busyPoll is a time in µs that the program has set; 0: it has not.
type busyPoll int32

// SetBusyPoll has every wait of the Waiter look for d before it parks: not at all if d is
// negative, and as long as the policy has it if d is 0. Before the first Wait.
func (w *Waiter) SetBusyPoll(d time.Duration) {
	switch {
	case d < 0:
		w.busy = -1
	case d > 0:
		w.busy = busyPoll(max(1, min(d, time.Second).Microseconds()))
	default:
		w.busy = 0
	}
}

// Hope lets the next wait take steps, because the caller knows that an answer is about to
// come.
func (w *Waiter) Hope() { w.score = min(max(w.score, least)+1, most) }

// Spin looks again and again, and reports whether look has returned true. came says
// whether that is what the peer has sent: to be woken by a goroutine of this process
// neither speaks for spinning nor against it. The first looks follow each other without a
// step between. first is how many those are: 0 where a look takes system calls. If Spin returns false the
// caller parks, and then calls Parked or Woken.
func (w *Waiter) Spin(first int, look, came func() bool) bool {
	if w.busy != 0 {
		return w.poll(first > 0, look)
	}
	if w.look(first, look, came) {
		return true
	}
	woken.park(w)
	return false
}

// look is Spin as the policy has it.
func (w *Waiter) look(first int, look, came func() bool) bool {
	if !w.goOn() {
		return false
	}
	if first > 0 && w.pure > pureLeast {
		for range first {
			if look() {
				if came() {
					w.pure = min(w.pure+1, pureMost)
				}
				return true
			}
			Pause(1)
		}
		w.pure--
	}
	return w.score >= max(w.need, least) && w.steps(first > 0, look, came)
}

// steps is the second phase.
func (w *Waiter) steps(memory bool, look, came func() bool) bool {
	limit, ok := process.begin(&process.waits, w.limit())
	if !ok {
		return false
	}
	s := stepper{memory: memory, now: Clock()}
	begin := s.now
	found, cut := false, limit < w.limit() // cut: what the wait would have come to is not known
	for end := begin + limit; s.now < end && !found && !s.wanted; {
		s.step()
		found = look()
		if !found && !w.mayGoOn(s.now) {
			cut = true
			break
		}
	}
	mine := found && !s.wanted && came()
	spent := s.now - begin - s.away
	if mine {
		spent = max(0, spent-woken.both())
	}
	process.end(&process.waits, spent)
	switch {
	case mine:
		w.need /= 2
		if !s.shared {
			w.pure = min(w.pure+1, 0) // the pure looks are worth another try
		}
	case !found && !cut || s.wanted:
		w.score = 0
		w.need = min(max(2*w.need, least), most)
	}
	return found
}

// poll looks for as long as the program has said.
func (w *Waiter) poll(memory bool, look func() bool) bool {
	if w.busy < 0 || !w.goOn() {
		return false
	}
	s := stepper{memory: memory, now: Clock()}
	if s.now < 0 { // see budget.begin
		return false
	}
	for end := s.now + time.Duration(w.busy)*time.Microsecond; s.now < end && !s.wanted; {
		if look() {
			return true
		}
		s.step()
		if !w.mayGoOn(s.now) {
			return false
		}
	}
	return look()
}

// stepper takes steps.
type stepper struct {
	memory bool // looks are at memory, and take no system call
	i      int
	now    time.Duration // when the clock was last read
	away   time.Duration // for how long others had the processor
	shared bool          // another thread has run on it lately,
	wanted bool          // for so long that it is wanted
}

func (s *stepper) step() {
	if !s.memory {
		s.yield(runtime.Gosched)
		return
	}
	Pause(stepPauses)
	switch {
	case s.i%stepYield == 0:
		s.yield(schedYield)
	case s.i%stepGosched == stepGosched-1:
		s.yield(runtime.Gosched)
	}
	s.i++
}

// yield gives the processor away.
func (s *stepper) yield(to func()) {
	before := Clock()
	to()
	s.now = Clock()
	d := s.now - before
	// Away for longer than any peer that runs would take. A goroutine that parks is woken
	// ahead of whoever had the processor; one that spins waits its turn.
	s.wanted = d > yieldLong
	if s.shared = d > yieldShort; s.shared {
		s.away += d - yieldShort // the change of threads is ours
	}
}

func schedYield() { unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// Needless tells that what the last Spin has found would have been as welcome later. The
// next waits park, until as many have as after an attempt in vain.
func (w *Waiter) Needless() {
	w.score = 0
	w.need = min(max(2*w.need, least), most)
}

// Woken is Parked where nobody knows when the peer woke this end: whether spinning would
// have paid off is found out by trying.
func (w *Waiter) Woken() {
	w.parkedUntil(Clock())
	w.score = min(w.score+1, most)
}

// parkedUntil takes in that the wait has parked.
func (w *Waiter) parkedUntil(now time.Duration) {
	w.since, w.chain, w.backlog = now, 0, false
	woken.parked(w)
}

// limit is for how long steps go on.
func (w *Waiter) limit() time.Duration {
	return min(max(wakes*time.Duration(w.wake), shortest), longest)
}

// Parked tells of a wait that has parked, from begin to now, on the Clock. rang is when
// the peer says that it woke this end, 0 if it does not say; what cannot be is not
// believed.
func (w *Waiter) Parked(begin, rang, now time.Duration) {
	w.parkedUntil(now)
	if begin <= rang && rang <= now {
		w.wake += (int32(min(now-rang, longest)) - w.wake) / 8
	} else {
		rang = now
	}
	// A wait as short as this would rather have spun.
	if rang-begin <= w.limit() {
		w.score = min(w.score+1, most)
	} else {
		w.score = max(w.score-2, 0)
	}
}
