//go:build linux

package spin

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The phases of a wait.
const (
	// Looks is the number of looks that a wait begins with if a look reads only memory.
	Looks     = 64
	pureLeast = -4 // the score below which these looks are left out
	pureMost  = 16

	stepPauses  = 2                      // PAUSEs in each step
	stepYield   = 4                      // one step in this many yields to the machine,
	stepGosched = 16                     // and one to the process, if goroutines wait for a P
	yieldShort  = 1500 * time.Nanosecond // after a yield of at most this, no other thread has run
	yieldLong   = 200 * time.Microsecond // after a longer one, another thread wants the processor
	shortest    = 50 * time.Microsecond  // the least time for steps,
	longest     = 400 * time.Microsecond // the most,
	wakes       = 8                      // and in between, this multiple of what a wake-up takes
	least       = 3                      // the score at which a wait takes steps at first,
	most        = 256                    // and at most, if attempts keep failing

	// yieldLatest is for how long waits with a time that the program has set poll without yielding to
	// the process. After 10 ms, the runtime interrupts the goroutine by a signal, takes its P away if it
	// is in a system call, and then looks at all Ps every 20 µs.
	yieldLatest = 3 * time.Millisecond
)

// Off is the busy-poll time of a wait that parks at once.
const Off = -1 * time.Microsecond

// Clock is the machine's monotonic clock, which all its processes share.
func Clock() time.Duration { return monotonic() }

// monotonic reads the clock. Tests replace it.
var monotonic = func() time.Duration { return sinceBoot + time.Since(epoch) }

var (
	epoch     = time.Now()
	sinceBoot = func() time.Duration {
		var now unix.Timespec
		unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
		return time.Duration(now.Nano()) - time.Since(epoch)
	}()
)

// Waiter decides how the waits in one direction of a connection poll. It belongs to the waiting
// goroutine, except SetBusyPoll. The zero value is ready to use.
type Waiter struct {
	score   int16         // short waits, less twice the long ones
	need    int16         // the score at which to take steps; 0: least
	pure    int8          // first looks that paid, less those that did not
	chain   uint8         // waits without parking since the clock was last read
	looks   uint8         // at the network, modulo 256
	backlog Backlog       // of the last of those
	busy    busyPoll      // µs; 0: the policy decides
	wake    int32         // ns that a wake-up has recently taken
	since   time.Duration // when a wait last parked, or looked at the network
	yielded time.Duration // when a wait last parked, or yielded because that was due
	earned  time.Duration // time for steps that are not charged to the budget; see Earn
}

// busyPoll is a time in µs that the program has set. 0: it has set none.
type busyPoll int32

// lastWake is what a wake-up has recently taken for a Waiter of this process, in ns.
var lastWake atomic.Int32

// paid is when the steps of a Waiter of this process have last paid off, on the Clock; 0: never.
var paid atomic.Int64

// paidLately is for how long that speaks for a new Waiter.
const paidLately = 100 * time.Millisecond

// Start prepares the Waiter of a new connection: if polling pays for others of the process, it takes steps at once.
func (w *Waiter) Start() {
	if at := paid.Load(); at != 0 && Clock()-time.Duration(at) < paidLately {
		w.score, w.wake = least, lastWake.Load()
	}
}

// SetBusyPoll makes every wait of the Waiter poll for d before it parks. If d is negative, waits do
// not poll; if it is 0, the policy decides. It must be called before the first wait.
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

// bytesPerStep is how many bytes earn 1 ns of steps. Over TCP, they would take more processor time than that.
const bytesPerStep = 16

// Earn is called before Spin with the number of bytes that have come since the last wait. They earn steps that are not
// charged to the budget: parking in the middle of a message costs as much, because the peer soon waits for room, too.
func (w *Waiter) Earn(bytes uint64) {
	w.earned = min(w.earned+time.Duration(bytes/bytesPerStep), longest)
}

// Spin polls, and reports whether look has returned true. came reports whether that is something
// that the peer has sent: a wake-up by a goroutine of this process is no evidence for or against
// polling. first is the number of looks to begin with, without steps between them: 0 if a look makes
// system calls, to a socket that the runtime polls. If Spin returns false, the caller parks, and
// then calls Parked or Woken.
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

// Glance is Spin without steps, for a wait that a Watch looks after once it parks.
func (w *Waiter) Glance(first int, look, came func() bool) bool {
	return w.goOn(first > 0) && w.firstLooks(first, look, came)
}

// look is Spin by the policy.
func (w *Waiter) look(first int, look, came func() bool) bool {
	if !w.goOn(first > 0) {
		return false
	}
	return w.firstLooks(first, look, came) || w.score >= max(w.need, least) && w.steps(first > 0, look, came)
}

// firstLooks takes the first looks of a wait, if they have paid off lately.
func (w *Waiter) firstLooks(first int, look, came func() bool) bool {
	if first == 0 || w.pure <= pureLeast {
		return false
	}
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
	return false
}

// steps takes the steps of a wait.
func (w *Waiter) steps(memory bool, look, came func() bool) bool {
	limit, ok := process.begin(&process.waits, w.limit(), w.earned)
	if !ok {
		return false
	}
	s := stepper{memory: memory, now: Clock()}
	if process.awake.overdue(s.now) {
		process.end(&process.waits, 0)
		return false
	}
	begin := s.now
	found, cut := false, limit < w.limit() // cut: how long the wait would have taken is unknown
	for end := begin + limit; s.now < end && !found && !s.wanted; {
		s.step()
		found = look()
		if !found && !w.mayGoOn(memory, s.now) {
			cut = true
			break
		}
	}
	mine := found && !s.wanted && came()
	spent := s.now - begin - s.away
	if mine {
		spent = max(0, spent-woken.both())
	}
	free := min(spent, w.earned)
	w.earned -= free
	process.end(&process.waits, spent-free)
	switch {
	case mine:
		w.need /= 2
		paid.Store(int64(s.now))
		if !s.shared {
			w.pure = min(w.pure+1, 0) // the first looks are worth another try
		}
	case !found && !cut || s.wanted:
		w.score = 0
		w.need = min(max(2*w.need, least), most)
	}
	return found
}

// poll polls for the time that the program has set.
func (w *Waiter) poll(memory bool, look func() bool) bool {
	if w.busy < 0 || !w.goOn(memory) {
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
		if !w.mayGoOn(memory, s.now) {
			return false
		}
		if !s.wanted && w.yieldDue(s.now) {
			w.yielded = s.now
			s.yield(yield)
		}
	}
	return look()
}

// stepper takes steps.
type stepper struct {
	memory bool // looks read only memory
	i      int
	now    time.Duration // when the clock was last read
	away   time.Duration // how long other threads had the processor
	shared bool          // another thread ran on it during the last yield,
	wanted bool          // for so long that it needs the processor
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
	case s.i%stepGosched == stepGosched-1 && runnable():
		s.yield(yield)
	}
	s.i++
}

// yield yields the processor.
func (s *stepper) yield(to func()) {
	before := Clock()
	to()
	s.now = Clock()
	d := s.now - before
	if s.shared = d > yieldShort; s.shared {
		s.away += d - yieldShort // switching threads counts as this goroutine's time
	}
	// It was away for longer than any running peer would take. A goroutine that parks runs
	// before the thread that had the processor, once it is woken; one that polls waits its turn.
	s.wanted = d > yieldLong
}

// schedYield lets other threads run. Tests replace it.
var schedYield = func() { unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// Needless is called if what the last Spin found was not worth polling for. The next waits park, as
// many as after an attempt in vain.
func (w *Waiter) Needless() {
	w.score = 0
	w.need = min(max(2*w.need, least), most)
}

// Woken is like Parked, if it is unknown when the peer woke this end. Whether polling would have
// paid off is then found out by trying.
func (w *Waiter) Woken() {
	w.parkedUntil(Clock())
	w.score = min(w.score+1, most)
}

// parkedUntil records that the wait has parked.
func (w *Waiter) parkedUntil(now time.Duration) {
	w.since, w.yielded, w.chain, w.backlog = now, now, 0, false
	process.awake.parked(now)
	woken.parked(w)
}

// limit returns for how long to take steps.
func (w *Waiter) limit() time.Duration {
	return min(max(wakes*time.Duration(w.wake), shortest), longest)
}

// Parked is called for a wait that has parked, from begin to now, on the Clock. rang is when the peer
// woke this end, by its own account; 0 if it does not say. Parked ignores an impossible time.
func (w *Waiter) Parked(begin, rang, now time.Duration) {
	w.parkedUntil(now)
	if begin <= rang && rang <= now {
		w.wake += (int32(min(now-rang, longest)) - w.wake) / 8
		lastWake.Store(w.wake)
	} else {
		rang = now
	}
	// A wait as short as this should have polled.
	if rang-begin <= w.limit() {
		w.score = min(w.score+1, most)
	} else {
		w.score = max(w.score-2, 0)
	}
}
