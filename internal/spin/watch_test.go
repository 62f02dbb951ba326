//go:build linux

package spin

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parkedWait is a Watched of a test.
type parkedWait struct {
	Watched
	news  atomic.Bool
	woken atomic.Int32
}

// crowd returns waits that are parked.
func crowd(t *testing.T, w *Watch, n int) (all []*parkedWait) {
	t.Helper()
	for range n {
		x := new(parkedWait)
		x.Ready, x.Wake = x.news.Load, func() { x.woken.Add(1) }
		w.Park(&x.Watched)
		t.Cleanup(w.Unpark)
		all = append(all, x)
	}
	return all
}

// contended is rich, and nothing but the watch runs.
func contended(t *testing.T) {
	t.Helper()
	rich(t)
	formerRunnable, formerYield := runnable, yield
	t.Cleanup(func() { runnable, yield = formerRunnable, formerYield })
	runnable, yield = func() bool { return false }, runtime.Gosched
	network(t, func() bool { return false })
}

// ended waits for the end of the goroutine.
func ended(w *Watch) {
	for w.Runs() || process.watches.taken.Load() {
		runtime.Gosched()
	}
}

// hold makes the goroutine stay in its next yield until the returned function is called. This and each later one calls turn.
func hold(turn func()) (release func()) {
	at, goOn := make(chan struct{}), make(chan struct{})
	once := false
	schedYield = func() {
		if !once {
			once = true
			close(at)
			<-goOn
		}
		turn()
	}
	return func() { <-at; close(goOn) }
}

// TestWatchWakes: the goroutine starts when enough waits are parked, wakes each for which something has arrived, and only
// those, until nothing comes any more. At its end it wakes all.
func TestWatchWakes(t *testing.T) {
	contended(t)
	var w Watch
	few := crowd(t, &w, watchLeast-1)
	assert.False(t, w.Add(&few[0].Watched))
	assert.False(t, w.Runs(), "too few are parked")
	all := append(few, crowd(t, &w, 2)...)
	woken := false
	yield = func() { // after it has found something
		if !woken {
			woken = true
			assert.EqualValues(t, 1, all[2].woken.Load())
			assert.Zero(t, all[0].woken.Load())
		}
	}
	release := hold(func() {})
	assert.False(t, w.Add(&all[0].Watched), "it has yet to start")
	require.True(t, w.Runs())
	for _, x := range all {
		require.True(t, w.Add(&x.Watched))
	}
	w.Remove(&all[1].Watched)
	all[2].news.Store(true)
	release()
	ended(&w)
	assert.True(t, woken)
	for i, x := range all {
		assert.EqualValues(t, min(1, max(i-1, 1-i)), x.woken.Load(), i)
		assert.Zero(t, x.place)
		w.Remove(&x.Watched)
	}
	assert.Empty(t, w.list)
}

// TestWatchGivesUp: runs in vain are tried less and less often, and are charged to the budget.
func TestWatchGivesUp(t *testing.T) {
	contended(t)
	var w Watch
	all := crowd(t, &w, watchLeast)
	ran := 0
	var charged time.Duration
	for range 1000 {
		process.left, process.filled = saved, Clock()
		w.Add(&all[0].Watched)
		if w.Runs() {
			ran++
		}
		ended(&w)
		charged += saved - process.left
	}
	assert.Greater(t, charged, time.Duration(ran)*watchIdle*9/10, "polling is free")
	assert.Greater(t, ran, 5)
	assert.Less(t, ran, 15)
}

// TestWatchGoesOn: a run that finds something now and then does not end, and costs nothing; the next one may start at once.
func TestWatchGoesOn(t *testing.T) {
	contended(t)
	var w Watch
	all := crowd(t, &w, watchLeast)
	finds := 0
	yield = func() { all[0].news.Store(false) }
	release := hold(func() {
		if finds < 1000 {
			finds++
			all[0].news.Store(true)
			w.Add(&all[0].Watched)
		}
	})
	w.Add(&all[0].Watched)
	release()
	ended(&w)
	assert.Equal(t, 1000, finds)
	assert.Zero(t, w.rest.Load())
	assert.Less(t, saved-process.left, 2*watchIdle)
}

// TestWatchGivesUpWaits: a wait for which nothing comes for long is woken once, and must park alone.
func TestWatchGivesUpWaits(t *testing.T) {
	contended(t)
	var w Watch
	all := crowd(t, &w, watchLeast)
	turns := 0
	yield = func() {}
	release := hold(func() {
		switch turns++; {
		case turns < 200: // the others' news keep it going
			pass(watchStays / 100)
			all[1].news.Store(true)
			w.Remove(&all[1].Watched)
			w.Add(&all[1].Watched)
		case turns == 200:
			assert.False(t, w.Add(&all[0].Watched), "it has been given up")
			assert.EqualValues(t, 1, all[0].woken.Load())
			w.Park(&all[0].Watched)
			assert.True(t, w.Add(&all[0].Watched), "the next wait")
			w.Unpark()
		}
	})
	w.Add(&all[0].Watched)
	for _, x := range all[:2] {
		require.True(t, w.Add(&x.Watched))
	}
	release()
	ended(&w)
	assert.Greater(t, turns, 200)
}

// TestWatchGivesWay: the goroutine ends if another thread has the processor for long whenever it yields.
func TestWatchGivesWay(t *testing.T) {
	contended(t)
	var w Watch
	all := crowd(t, &w, watchLeast)
	yields := 0
	schedYield = func() { yields++; pass(2 * yieldLong) }
	w.Add(&all[0].Watched)
	ended(&w)
	assert.Equal(t, watchLong, yields)
}

// TestWatchLeavesTheNetwork: the goroutine ends if events of the network stay, although it finds something each time.
func TestWatchLeavesTheNetwork(t *testing.T) {
	contended(t)
	var w Watch
	all := crowd(t, &w, watchLeast)
	network(t, func() bool { return true })
	finds := 0
	yield = func() {
		pass(chainTime)
		if finds++; finds < 1000 {
			w.Add(&all[0].Watched)
		}
	}
	release := hold(func() { all[0].news.Store(true) })
	w.Add(&all[0].Watched)
	require.True(t, w.Add(&all[0].Watched))
	release()
	ended(&w)
	assert.Positive(t, finds)
	assert.Less(t, finds, 2*watchEvents)
}

// TestWatchOfOneProcessor: without a second processor there is none.
func TestWatchOfOneProcessor(t *testing.T) {
	contended(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var w Watch
	all := crowd(t, &w, 2*watchLeast)
	for range 100 {
		assert.False(t, w.Add(&all[0].Watched))
		assert.False(t, w.Runs())
	}
}
