//go:build linux

package spin

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// share is the part of a processor's time that steps may take beyond what they save;
	// less under a quota of fewer than four processors.
	share = 0.05
	// saved is how much unused time the budget holds at most.
	saved = 2 * time.Millisecond
	// wakeCost is what a wait that steps have shortened has of them free. Being woken takes
	// some 10 µs of processor time at this end, and as much at the peer's, which answers
	// the sooner the sooner it is asked; on virtual machines both are two to three times that.
	wakeCost = 50 * time.Microsecond
)

// budget is what the steps of all Waiters of a process share.
type budget struct {
	spinning atomic.Bool // one goroutine takes steps; it owns the fields below
	left     time.Duration
	filled   time.Duration // when left last grew, on the Clock
}

var process budget

// begin reports whether the caller may take steps now, and for how long: limit, or what is
// left. Then end follows.
func (b *budget) begin(limit time.Duration) (time.Duration, bool) {
	if !b.spinning.CompareAndSwap(false, true) {
		return 0, false // the others leave the processors to whoever works
	}
	now, q := Clock(), quota()
	if runtime.GOMAXPROCS(0) == 1 || q < 1 {
		b.left = -1
	} else {
		b.left = min(b.left+time.Duration(float64(now-b.filled)*share*min(1, q/4)), saved)
	}
	b.filled = now
	if b.left < 0 {
		b.spinning.Store(false)
		return 0, false
	}
	return min(limit, b.left+wakeCost), true
}

// end charges what the steps have cost.
func (b *budget) end(cost time.Duration) {
	b.left -= cost
	b.spinning.Store(false)
}

// A goroutine that goes from one wait to the next without parking keeps its P from polling
// the network. While another P is idle, a thread of that one waits for the network.
const (
	chainTime  = 50 * time.Microsecond // for how long a goroutine may do so unasked
	chainWaits = 4                     // waits between two looks at the clock
)

// mayGoOn reports whether the waits may go on without parking: the last one that did is
// not chainTime ago, or a P is idle.
func (w *Waiter) mayGoOn(now time.Duration) bool {
	w.chain = 0
	if now-w.since <= chainTime {
		return true
	}
	if ps.busy(now) {
		return false
	}
	w.since = now
	return true
}

// occupied knows whether every P has had work lately.
type occupied struct {
	measuring atomic.Bool // guards what follows
	at, used  time.Duration
	all       atomic.Bool // the result
}

var ps occupied

// busy reports whether the process used the processors since it was last asked as much as
// its Ps can, which means that none of them was idle.
func (o *occupied) busy(now time.Duration) bool {
	n := runtime.GOMAXPROCS(0)
	if n == 1 {
		return true
	}
	if o.measuring.CompareAndSwap(false, true) {
		if d := now - o.at; d >= chainTime/2 {
			var t unix.Timespec
			unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
			used := time.Duration(t.Nano())
			o.all.Store(4*(used-o.used) >= (4*time.Duration(n)-1)*d)
			o.at, o.used = now, used
		}
		o.measuring.Store(false)
	}
	return o.all.Load()
}
