//go:build linux

package spin

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// crowd is Watched whose Looks return what the test says. rounds collects their arguments.
type crowd struct {
	look func(i int) (found, others int)

	mu     sync.Mutex
	looks  int
	left   int
	rounds []uint8
}

func (c *crowd) Look(round uint8) (found, others int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	c.rounds = append(c.rounds, round)
	return c.look(c.looks - 1)
}

func (c *crowd) Leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left++
}

// nothing is a Look that finds nothing, everything one that finds something for all of many connections.
func nothing(int) (found, others int)    { return 0, 0 }
func everything(int) (found, others int) { return watchRound, watchRound }

// run starts the goroutine if it is due, waits for its end, and reports whether it has run.
func (c *crowd) run(t *testing.T, w *Watch) bool {
	t.Helper()
	before := c.left
	w.Start(c)
	for w.Runs() {
		runtime.Gosched()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left > before
}

// passed is the time on the clock of a run in these tests. It belongs to the goroutine that runs.
var passed time.Duration

const tick = 200 * time.Nanosecond // passes between two looks at the clock

// contended is a state in which several waits want to poll, the process has its whole budget, a
// wake-up costs what it does before one was measured, and nothing else happens.
func contended(t *testing.T) {
	t.Helper()
	rich(t)
	process.waits.asked.Store(true)
	cost := woken.cost.Swap(int64(costFirst))
	t.Cleanup(func() { woken.cost.Store(cost) })
	formerRunnable, formerYield, formerSched, formerClock := runnable, yield, schedYield, clock
	t.Cleanup(func() {
		process.waits.asked.Store(false)
		runnable, yield, schedYield, clock = formerRunnable, formerYield, formerSched, formerClock
	})
	runnable, yield, schedYield = func() bool { return false }, func() {}, func() {}
	clock = func() time.Duration { passed += tick; return passed }
}

// TestWatchStarts: the goroutine starts only if several waits want to poll, or if it has paid off.
func TestWatchStarts(t *testing.T) {
	contended(t)
	var w Watch
	c := &crowd{look: func(i int) (int, int) {
		if i%1000 < 50 {
			return everything(i)
		}
		return 0, 0
	}}
	process.waits.asked.Store(false)
	assert.False(t, w.Possible())
	assert.False(t, c.run(t, &w), "no wait wants to poll")
	process.waits.asked.Store(true)
	assert.True(t, w.Possible())
	assert.True(t, c.run(t, &w))
	assert.Equal(t, 1, c.left)
	process.waits.asked.Store(false)
	assert.True(t, w.Possible())
	assert.True(t, c.run(t, &w), "it has paid off")
}

// TestWatchIsOne: a second goroutine does not start while the first runs.
func TestWatchIsOne(t *testing.T) {
	contended(t)
	var w Watch
	begun, goesOn := make(chan struct{}), make(chan struct{})
	c := &crowd{look: func(i int) (int, int) {
		if i == 0 {
			close(begun)
			<-goesOn
		}
		return 0, 0
	}}
	w.Start(c)
	<-begun
	for range 100 {
		w.Start(c)
		assert.True(t, w.Runs())
	}
	close(goesOn)
	for w.Runs() {
		runtime.Gosched()
	}
	assert.Equal(t, 1, c.left)
}

// TestWatchGivesUp: runs in vain are tried less and less often, and are charged to the budget. After one
// that has paid off, the next one is tried at once, and a few in vain do not change that.
func TestWatchGivesUp(t *testing.T) {
	contended(t)
	var w Watch
	c := &crowd{look: nothing}
	ran := 0
	var charged time.Duration
	for range 1000 {
		process.left, process.filled = saved, Clock()
		if c.run(t, &w) {
			ran++
		}
		charged += saved - process.left
		assert.False(t, w.pays.Load())
	}
	assert.Greater(t, charged, time.Duration(ran)*watchIdle*9/10, "polling is free")
	assert.Greater(t, ran, 5)
	assert.Less(t, ran, 15)

	c.look = func(i int) (int, int) {
		if i < 50 {
			return everything(i)
		}
		return 0, 0
	}
	for tries := 0; !w.pays.Load(); tries++ {
		c.looks = 0
		c.run(t, &w)
		require.Less(t, tries, mostRest+1, "it never recovers")
	}
	assert.Zero(t, w.vain)
	assert.Equal(t, watchGain, w.gain)
	c.look = nothing
	ran = 0
	for w.pays.Load() {
		process.left, process.filled = saved, Clock()
		require.True(t, c.run(t, &w))
		ran++
	}
	assert.Greater(t, ran, 1)
	assert.LessOrEqual(t, ran, int(watchGain/watchIdle)+1)
}

// TestWatchNeedsMany: a run ends, and has not paid off, if its finds are for few connections.
func TestWatchNeedsMany(t *testing.T) {
	contended(t)
	for others := 1; others <= watchOthers+1; others++ {
		var w Watch
		c := &crowd{}
		c.look = func(i int) (int, int) { // one connection after the other
			switch {
			case i >= 10*watchRound:
				return 0, 0
			case i%watchRound < others:
				return 1, 1
			}
			return 1, 0
		}
		require.True(t, c.run(t, &w))
		if others < watchOthers {
			assert.Equal(t, watchRound, c.looks, "%d connections", others)
			assert.False(t, w.pays.Load())
			assert.EqualValues(t, 1, w.vain)
			continue
		}
		assert.GreaterOrEqual(t, c.looks, 10*watchRound, "%d connections", others)
		for i, r := range c.rounds[:10*watchRound] {
			assert.EqualValues(t, 1+i/watchRound, r, "look %d", i)
		}
		first := len(c.rounds)
		w.rest.Store(0)
		require.True(t, c.run(t, &w))
		assert.Greater(t, c.rounds[first], c.rounds[first-1], "a new run begins a new round")
	}
}

// TestWatchLetsThePPoll: a run that always finds something ends if events of the network stay.
func TestWatchLetsThePPoll(t *testing.T) {
	contended(t)
	var w Watch
	c := &crowd{look: everything}
	looks := 0
	network(t, func() bool { looks++; return looks%10 != 0 || looks > 100 })
	begin := passed
	require.True(t, c.run(t, &w))
	assert.Equal(t, 100+watchEvents, looks)
	assert.GreaterOrEqual(t, passed-begin, time.Duration(looks-1)*chainTime)
}

// TestWatchLetsThreadsRun: a run ends if a yield was so long that another thread wants the processor.
func TestWatchLetsThreadsRun(t *testing.T) {
	contended(t)
	yields := 0
	schedYield = func() {
		yields++
		passed += 2 * yieldShort
		if yields == 100 {
			passed += yieldLong
		}
	}
	var w Watch
	c := &crowd{look: nothing}
	process.left = saved
	require.True(t, c.run(t, &w))
	assert.Equal(t, 100, yields)
	assert.Greater(t, process.left, saved-watchIdle, "the time of other threads is charged")
}

// TestWatchYieldsToGoroutines: after a find, and while others are ready to run, goroutines of this
// process come first, and their time is free.
func TestWatchYieldsToGoroutines(t *testing.T) {
	contended(t)
	var yields, threads int
	yield = func() {
		yields++
		if yields <= 20 {
			passed += watchIdle
		}
	}
	schedYield = func() { threads++ }
	left := 20
	runnable = func() bool { left--; return left >= 0 }
	var w Watch
	c := &crowd{look: func(i int) (int, int) {
		if i < 10 {
			return everything(i)
		}
		return 0, 0
	}}
	require.True(t, c.run(t, &w))
	assert.Equal(t, 10+20, yields)
	assert.Equal(t, c.looks-20, threads, "if no goroutine is ready, or none of this P")
	assert.True(t, w.pays.Load())
}

// TestWatchNeedsBudget: without a budget the goroutine does not look.
func TestWatchNeedsBudget(t *testing.T) {
	contended(t)
	process.left = -saved
	var w Watch
	c := &crowd{look: nothing}
	c.run(t, &w)
	assert.Zero(t, c.looks)
	assert.EqualValues(t, 1, w.vain)
}
