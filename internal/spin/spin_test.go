//go:build linux

package spin

import (
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func never() bool { return false }

// rich is quiet for a process that has a full budget, as after a time without steps, at least two Ps, no events
// of the network, and no memory of what tests before did.
func rich(t *testing.T) {
	t.Helper()
	quiet(t)
	old := runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))
	t.Cleanup(func() { runtime.GOMAXPROCS(old) })
	process.left, process.filled = saved, Clock()
	process.awake.since, process.awake.waits = Clock(), 0
	process.awake.last.Store(0)
	lookTakes.Store(0)
	woken.cost.Store(int64(costFirst))
	woken.of.Store(nil)
}

// machine is the clock of a quiet machine, which has been up for a long time.
var machine atomic.Int64

// pass lets time pass on that clock.
func pass(d time.Duration) { machine.Add(int64(d)) }

// quiet gives a test a machine of its own: each reading of the clock is a microsecond after the one before, a
// yield to other threads returns at once, nothing comes from the network, there is no quota, and the process uses no
// processor time.
func quiet(t *testing.T) {
	t.Helper()
	oldClock, oldYield, oldProcessors := monotonic, schedYield, processors
	t.Cleanup(func() {
		monotonic, schedYield, processors = oldClock, oldYield, oldProcessors
		process.left, process.filled = initial, 0
		lookTakes.Store(0)
	})
	machine.Store(int64(1000 * time.Hour))
	monotonic = func() time.Duration { return time.Duration(machine.Add(int64(time.Microsecond))) }
	schedYield = func() {}
	processors = func() float64 { return math.Inf(1) }
	network(t, func() bool { return false })
	hasUsed(t, 0)
}

// attempted reports that a wait took steps in vain, which raises the score that the next one needs.
func attempted(w *Waiter) bool {
	w.pure, w.since = pureLeast, Clock()
	before := w.need
	w.Spin(Looks, never, never)
	return w.need != before
}

// TestJudgesTheWaitNotTheWaking: if processors take long to wake up, every wait that parked was long;
// but if the peer answered early enough, polling would have paid off.
func TestJudgesTheWaitNotTheWaking(t *testing.T) {
	const begin, wake = time.Hour, 90 * time.Microsecond
	for _, v := range []struct {
		name   string
		waited time.Duration
		rang   func(waited time.Duration) time.Duration
		spins  bool
	}{
		{"an answer at once", 10 * time.Microsecond, func(w time.Duration) time.Duration { return begin + w }, true},
		{"an answer of a peer that was woken", 95 * time.Microsecond, func(w time.Duration) time.Duration { return begin + w }, true},
		{"silence", 5 * time.Millisecond, func(w time.Duration) time.Duration { return begin + w }, false},
		{"no word about when", 10 * time.Microsecond, func(time.Duration) time.Duration { return 0 }, false},
		{"a time to come", 5 * time.Millisecond, func(time.Duration) time.Duration { return 1 << 62 }, false},
		{"a time before", 5 * time.Millisecond, func(time.Duration) time.Duration { return -1 << 62 }, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			rich(t)
			var w Waiter
			for range 20 {
				w.Parked(begin, v.rang(v.waited), begin+v.waited+wake)
			}
			assert.Equal(t, v.spins, attempted(&w), "%+v, %v left, a wake-up costs %v", w, process.left, woken.both()/2)
			assert.LessOrEqual(t, w.limit(), longest)
			assert.GreaterOrEqual(t, w.limit(), shortest)
		})
	}
}

// TestGivesUp: what never pays is tried less and less often.
func TestGivesUp(t *testing.T) {
	for name, parked := range map[string]func(*Waiter){
		"short waits":   func(w *Waiter) { w.Parked(time.Hour, time.Hour+time.Microsecond, time.Hour+2*time.Microsecond) },
		"unknown waits": func(w *Waiter) { w.Woken() },
	} {
		t.Run(name, func(t *testing.T) {
			rich(t)
			var w Waiter
			tried := 0
			for range 1000 {
				process.left = saved
				if attempted(&w) {
					tried++
				}
				parked(&w)
			}
			assert.Greater(t, tried, 2)
			assert.Less(t, tried, 20)
		})
	}
}

// TestEarn: a wait in a stream takes steps without a budget, for as long as the bytes before it have earned, and those
// are not charged to the budget.
func TestEarn(t *testing.T) {
	steps := func(w *Waiter) (found bool, took time.Duration) {
		w.pure, w.score, w.need, w.wake, w.since = pureLeast, most, least, int32(longest), Clock()
		process.left, process.filled = -saved, Clock()
		begin := Clock()
		found = w.Spin(Looks, func() bool { return Clock()-begin > 100*time.Microsecond }, func() bool { return true })
		return found, Clock() - begin
	}
	rich(t)
	woken.cost.Store(0)
	var w Waiter
	found, took := steps(&w)
	assert.False(t, found, "nothing earned")
	assert.Less(t, took, 10*time.Microsecond)

	w.Earn(bytesPerStep * uint64(50*time.Microsecond))
	found, took = steps(&w)
	assert.False(t, found, "too little")
	assert.InDelta(t, 50*time.Microsecond, took, float64(10*time.Microsecond))
	assert.Equal(t, -saved, process.left)
	assert.Zero(t, w.earned)

	w.Earn(math.MaxUint64)
	assert.Equal(t, longest, w.earned)
	found, _ = steps(&w)
	assert.True(t, found)
	assert.Equal(t, -saved, process.left)
	assert.Positive(t, w.earned)
	assert.Less(t, w.earned, longest)
}

// TestNeedless: time for something that was not worth polling for is charged, and the next attempts
// are half as frequent.
func TestNeedless(t *testing.T) {
	rich(t)
	w := Waiter{pure: pureLeast, score: most, need: 8, since: Clock()}
	require.True(t, w.Spin(Looks, func() bool { return true }, never))
	assert.Less(t, process.left, saved)
	need := w.need
	assert.GreaterOrEqual(t, need, int16(8), "it does not count as paid")
	w.Needless()
	assert.Equal(t, 2*need, w.need)
	assert.False(t, attempted(&w))
}

// TestBudget: steps in vain use up the budget, and time refills it at its share. Steps that shortened
// a wait cost only what exceeds a wake-up.
func TestBudget(t *testing.T) {
	rich(t)
	hasUsed(t, time.Hour)
	var b budget
	b.left, b.filled = saved, Clock()
	for n := 0; ; n++ {
		limit, ok := b.begin(&b.waits, longest, 0)
		if !ok {
			break
		}
		require.LessOrEqual(t, n, int(saved/shortest)+2, "the budget does not end")
		b.end(&b.waits, limit)
	}
	require.Negative(t, b.left)
	b.end(&b.waits, time.Hour)
	assert.Equal(t, -saved, b.left, "the process was stopped")
	b.filled, b.used = Clock()-10*time.Millisecond, 0
	b.left = 0
	_, ok := b.begin(&b.waits, longest, 0)
	require.True(t, ok)
	assert.InDelta(t, share*float64(10*time.Millisecond), float64(b.left), float64(10*time.Microsecond))
	_, second := b.begin(&b.waits, longest, 0)
	assert.False(t, second, "one goroutine of a process at a time")
	_, look := b.begin(&b.rooms, longest, 0)
	assert.True(t, look, "one that waits for room beside it")
	b.end(&b.rooms, 0)
	b.end(&b.waits, 0)

	b.filled, b.used = Clock()-time.Hour, 0
	limit, ok := b.begin(&b.waits, longest, 0)
	require.True(t, ok)
	assert.Equal(t, longest, limit)
	assert.Equal(t, saved, b.left)
	b.end(&b.waits, 0)
}

// TestQuota: a process whose quota is less than a processor takes no steps, and the budget of one with less than
// four processors grows more slowly.
func TestQuota(t *testing.T) {
	rich(t)
	for quota, want := range map[float64]float64{0.5: 0, 1: share / 4, 2: share / 2, 4: share, 64: share} {
		processors = func() float64 { return quota }
		hasUsed(t, time.Hour)
		var b budget
		b.filled = Clock() - 10*time.Millisecond
		_, ok := b.begin(&b.waits, longest, 0)
		assert.Equal(t, quota >= 1, ok, "%v processors", quota)
		if ok {
			assert.InDelta(t, want*float64(10*time.Millisecond), float64(b.left), float64(10*time.Microsecond), "%v processors", quota)
			_, beside := b.begin(&b.waits, longest, 0)
			assert.False(t, beside, "one goroutine of a process at a time")
			continue
		}
		processors = func() float64 { return 64 }
		_, ok = b.begin(&b.waits, longest, 0)
		assert.True(t, ok, "the turn was not given back")
	}
}

// hasUsed makes the process's processor time d.
func hasUsed(t *testing.T, d time.Duration) {
	t.Helper()
	old := processorTime
	t.Cleanup(func() { processorTime = old })
	processorTime = func() time.Duration { return d }
}

// TestBudgetOfAProcessThatDoesLittle: steps may take a part of what the process uses, so a process that does
// little gets less than its share of a processor. What it used before its first wait does not count.
func TestBudgetOfAProcessThatDoesLittle(t *testing.T) {
	quiet(t)
	var b budget
	refill := func(after, used time.Duration) time.Duration {
		b.filled -= after
		hasUsed(t, used)
		return b.refill(Clock(), share)
	}
	hasUsed(t, 30*time.Millisecond)
	require.Zero(t, b.refill(Clock(), share), "at first")
	assert.Zero(t, refill(growEvery/2, 40*time.Millisecond), "too early")
	assert.EqualValues(t, ownShare*float64(10*time.Millisecond), refill(time.Second, 40*time.Millisecond))
	assert.EqualValues(t, ownShare*float64(15*time.Millisecond), refill(time.Second, 45*time.Millisecond))
	assert.EqualValues(t, ownShare*float64(15*time.Millisecond), refill(-time.Second, time.Hour), "the clock went back")
	assert.EqualValues(t, ownShare*float64(16*time.Millisecond), refill(time.Second, time.Hour+time.Millisecond))
	assert.EqualValues(t, ownShare*float64(16*time.Millisecond), refill(time.Second, 0), "another process took its place")
}

// TestOneProcessor: with one P, no goroutine takes steps, because it would keep all others from running.
func TestOneProcessor(t *testing.T) {
	rich(t)
	runtime.GOMAXPROCS(1)
	var b budget
	b.left = saved
	_, ok := b.begin(&b.waits, longest, 0)
	assert.False(t, ok)
}

// TestBusyPoll: a time that the program has set is kept, and Off parks at once.
func TestBusyPoll(t *testing.T) {
	rich(t)
	var w Waiter
	w.SetBusyPoll(Off)
	assert.False(t, w.Spin(Looks, func() bool { t.Fatal("looked"); return true }, never))

	const set = 3 * time.Millisecond
	w.SetBusyPoll(set)
	process.left = -time.Hour // does not count
	begin := Clock()
	w.Parked(0, 0, begin)
	require.False(t, w.Spin(Looks, never, never))
	assert.InDelta(t, set, Clock()-begin, float64(set/10))
	assert.True(t, w.Spin(Looks, func() bool { return true }, never))
}

// TestWakeups: the cost of a wait that parks is learned from samples: quickly if it is less, slowly if
// it is more, because that may have been the work of another goroutine.
func TestWakeups(t *testing.T) {
	quiet(t)
	used := time.Duration(0)
	processorTime = func() time.Duration { return used }
	var k wakeups
	k.cost.Store(int64(10 * time.Microsecond))
	wait := func(work time.Duration) {
		var w Waiter
		for range measured {
			k.park(&w)
			used += work
			k.parked(&w)
		}
	}
	wait(time.Millisecond)
	assert.Equal(t, 2*(10*time.Microsecond+(costMost-10*time.Microsecond)/16), k.both())
	for range 200 {
		wait(100 * time.Microsecond)
	}
	assert.InDelta(t, float64(2*costMost), float64(k.both()), 100)
	for range 20 {
		wait(0)
	}
	assert.Less(t, k.both(), costMost)

	var gone, w Waiter
	for range measured {
		k.park(&gone) // and never returns
	}
	require.Same(t, &gone, k.of.Load())
	for range measured {
		k.park(&w)
	}
	require.Same(t, &gone, k.of.Load())
	k.since.Add(-int64(forgotten))
	for range measured {
		k.park(&w)
	}
	assert.Same(t, &w, k.of.Load())
}

// TestStart: a new Waiter takes steps at once if those of others have paid off lately.
func TestStart(t *testing.T) {
	was := paid.Load()
	defer paid.Store(was)
	for _, v := range []struct {
		at   time.Duration
		want int16
	}{{0, 0}, {Clock(), least}, {max(1, Clock()-paidLately), 0}} {
		paid.Store(int64(v.at))
		var w Waiter
		w.Start()
		assert.Equal(t, v.want, w.score)
	}
}
