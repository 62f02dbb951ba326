//go:build linux

package spin

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/cgroup"
)

const (
	// share is the part of a processor's time that steps may take beyond what they save. It is
	// less under a quota of fewer than four processors.
	share = 0.10
	// ownShare is the part of the process's own processor time that they may take: a process that
	// does little must not look much busier than it is.
	ownShare = 0.20
	// growEvery is how often the budget grows. More often would cost more system calls.
	growEvery = 100 * time.Microsecond
	// initial is what it begins with.
	initial = 500 * time.Microsecond
	// saved is the most unused time that it holds.
	saved = 4 * time.Millisecond
)

// budget is what the steps of all Waiters of a process share.
type budget struct {
	waits, rooms, watches turn // for Waiters, Rooms and the Watch
	awake                 awake

	mu     sync.Mutex
	left   time.Duration
	filled time.Duration // when left last grew, on the Clock; 0: never
	used   time.Duration // the process's processor time then
}

// turn is held by the goroutine that takes steps. Others park, and leave the processors to goroutines
// that have work.
type turn struct {
	taken atomic.Bool
}

var process = budget{left: initial}

// wakeups estimates what a wake-up costs, in processor time of this process: the system calls, and
// what the runtime does before a thread sleeps and after it was woken. The cost depends on the
// processor, on whether that is virtual, and on what the kernel does with an idle one.
type wakeups struct {
	cost  atomic.Int64 // ns
	parks atomic.Uint32

	// One wait is measured at a time. A connection that ends does not say so, so a wait that takes
	// long is forgotten. A sample that another one has overwritten is wrong, but at most costMost.
	of    atomic.Pointer[Waiter]
	since atomic.Int64 // on the Clock
	used  atomic.Int64 // processor time when it parked
}

const (
	measured  = 16                    // one in this many waits that park is measured
	forgotten = 10 * time.Millisecond // a wait that takes longer is ignored
	costMost  = 25 * time.Microsecond // the rest is work of other goroutines
	costFirst = 5 * time.Microsecond  // until one was measured
)

var woken = func() *wakeups {
	k := new(wakeups)
	k.cost.Store(int64(costFirst))
	return k
}()

// park measures one in every measured waits that are about to park.
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

// parked evaluates a wait that has parked, if it was measured. Other goroutines may have worked
// meanwhile, so a lower sample counts for more.
func (k *wakeups) parked(w *Waiter) {
	if k.of.Load() != w {
		return
	}
	sample := min(int64(processorTime())-k.used.Load(), int64(costMost))
	late := Clock()-time.Duration(k.since.Load()) >= forgotten // it may be another wait
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

// both returns the cost of a wait for which each of two ends parks.
func (k *wakeups) both() time.Duration { return 2 * time.Duration(k.cost.Load()) }

// processorTime returns what the process has used. Tests replace it.
var processorTime = func() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// processors returns the quota of this process's control group, +Inf if there is none. Tests replace it.
var processors = func() float64 {
	limits, _ := cgroup.Soon()
	return limits.Processors
}

// begin reports whether the caller may take steps now, and for how long: at most limit, and at most what the budget has
// left and the caller has earned. If it returns true, the caller must call end. It never does in a bubble of
// testing/synctest, whose time begins long before the boot and stands still while a goroutine runs.
func (b *budget) begin(t *turn, limit, earned time.Duration) (time.Duration, bool) {
	now := Clock()
	if now < 0 || !t.taken.CompareAndSwap(false, true) {
		return 0, false
	}
	q := processors()
	left := b.refill(now, share*min(1, q/4))
	if earned > 0 {
		left = max(left, 0) + earned
	}
	if left < 0 || runtime.GOMAXPROCS(0) == 1 || q < 1 {
		t.taken.Store(false)
		return 0, false
	}
	return min(limit, left+woken.both()), true
}

// refill adds a part of the time since it last did, or ownShare of the processor time if that is less,
// and returns what the budget has.
func (b *budget) refill(now time.Duration, part float64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	passed := now - b.filled
	if 0 <= passed && passed < growEvery {
		return b.left
	}
	used := processorTime()
	if b.filled > 0 {
		// Both go back if the process was moved to another machine.
		grown := max(0, min(float64(passed)*part, float64(used-b.used)*ownShare))
		b.left = min(b.left+time.Duration(grown), saved)
	}
	b.filled, b.used = now, used
	return b.left
}

// end charges the cost of the steps. If the process was stopped meanwhile, it has not used that time.
func (b *budget) end(t *turn, cost time.Duration) {
	b.mu.Lock()
	b.left = max(b.left-cost, -saved)
	b.mu.Unlock()
	t.taken.Store(false)
}
