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
)

// budget is what the steps of all Waiters of a process share.
type budget struct {
	spinning atomic.Bool // one goroutine takes steps; it owns the fields below
	left     time.Duration
	filled   time.Duration // when left last grew, on the Clock
}

var process budget

// wakeups knows what it costs to be woken, in processor time of this process: the system
// calls, and what the runtime does before a thread sleeps and after it was woken. It
// differs by the processor, by whether that is virtual, and by what the kernel does with
// one that is idle.
type wakeups struct {
	cost  atomic.Int64 // ns
	parks atomic.Uint32

	// One wait is measured at a time. A connection that ends does not say so, and so a
	// wait that takes long is forgotten. A sample that another one has overwritten is
	// wrong, and no more than costMost.
	of    atomic.Pointer[Waiter]
	since atomic.Int64 // on the Clock
	used  atomic.Int64 // processor time when it parked
}

const (
	measured  = 16                    // one of so many waits that park is measured
	forgotten = 10 * time.Millisecond // what takes longer
	costMost  = 25 * time.Microsecond // more was work of other goroutines
	costFirst = 5 * time.Microsecond  // before one was measured
)

var woken = func() *wakeups {
	k := new(wakeups)
	k.cost.Store(int64(costFirst))
	return k
}()

// park measures one in so many of the waits that are about to park.
func (k *wakeups) park(w *Waiter) {
	if k.parks.Add(1)%measured != 0 {
		return
	}
	now, of := Clock(), k.of.Load()
	if of != nil && now-time.Duration(k.since.Load()) < forgotten || !k.of.CompareAndSwap(of, w) {
		return
	}
	k.since.Store(int64(now))
	k.used.Store(int64(processorTime()))
}

// parked takes in a wait that has parked, if it was measured. Other goroutines may have
// worked meanwhile, so a sample that is less counts for more.
func (k *wakeups) parked(w *Waiter) {
	if k.of.Load() != w {
		return
	}
	sample := min(int64(processorTime())-k.used.Load(), int64(costMost))
	late := Clock()-time.Duration(k.since.Load()) >= forgotten // perhaps it is another wait
	if k.of.CompareAndSwap(w, nil) && !late {
		c := k.cost.Load()
		if sample < c {
			c += (sample - c) / 4
		} else {
			c += (sample - c) / 16
		}
		k.cost.Store(c)
	}
}

// both is what a wait costs that parks at each of two ends.
func (k *wakeups) both() time.Duration { return 2 * time.Duration(k.cost.Load()) }

func processorTime() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// begin reports whether the caller may take steps now, and for how long: limit, or what is
// left. Then end follows.
func (b *budget) begin(limit time.Duration) (time.Duration, bool) {
	if !b.spinning.CompareAndSwap(false, true) {
		return 0, false // the others leave the processors to whoever works
	}
	now, q := Clock(), quota()
	passed := max(0, now-b.filled) // a process that was moved to another machine finds another clock
	b.left = min(b.left+time.Duration(float64(passed)*share*min(1, q/4)), saved)
	b.filled = now
	// In a bubble of testing/synctest, where time begins long before the boot, it stands
	// still while a goroutine runs.
	if b.left < 0 || runtime.GOMAXPROCS(0) == 1 || q < 1 || now < 0 {
		b.spinning.Store(false)
		return 0, false
	}
	return min(limit, b.left+woken.both()), true
}

// end charges what the steps have cost. A process that was stopped meanwhile has not used
// the time.
func (b *budget) end(cost time.Duration) {
	b.left = max(b.left-cost, -saved)
	b.spinning.Store(false)
}

// A goroutine that goes from one wait to the next without parking keeps its P from polling
// the network. While another P is idle, a thread of that one waits for the network.
const (
	chainTime  = 50 * time.Microsecond // for how long a goroutine may do so unasked,
	chainMost  = time.Millisecond      // and at most: other processes may have had the processors
	chainWaits = 4                     // waits between two looks at the clock
)

// mayGoOn reports whether the waits may go on without parking: the last one that did is
// not chainTime ago, or a P is idle and it is not chainMost ago.
func (w *Waiter) mayGoOn(now time.Duration) bool {
	w.chain = 0
	if now-w.since <= chainTime {
		return true
	}
	return now-w.since <= chainMost && !ps.busy(now)
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
		if d := now - o.at; d >= chainTime {
			used := processorTime()
			o.all.Store(4*(used-o.used) >= (4*time.Duration(n)-1)*d)
			o.at, o.used = now, used
		}
		o.measuring.Store(false)
	}
	return o.all.Load()
}
