//go:build linux

package spin

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// network replaces what pending finds.
func network(t *testing.T, events func() bool) {
	t.Helper()
	old := pending
	t.Cleanup(func() { pending = old })
	pending = events
}

// chain lets waits follow each other that are over at the second look, and returns how
// long it took until one parked, or most.
func chain(w *Waiter, most time.Duration) time.Duration {
	begin := Clock()
	w.Parked(0, 0, begin)
	for Clock()-begin < most {
		looked := 0
		if !w.Spin(Looks, func() bool { looked++; return looked > 1 }, func() bool { return true }) {
			return Clock() - begin
		}
	}
	return most
}

// TestChain: waits that are over at once end in a park if events stay with the kernel, not
// at the first look that finds some, and not if there are none.
func TestChain(t *testing.T) {
	rich(t)
	const long = 20 * time.Millisecond
	looks := 0
	var w Waiter
	network(t, func() bool { looks++; return true })
	took := chain(&w, time.Second)
	assert.Greater(t, took, chainTime+chainAgain)
	assert.Less(t, took, time.Second, "nothing parks")
	assert.Equal(t, 2, looks)
	assert.Greater(t, chain(&w, time.Second), chainTime, "after a park the next chain begins")

	network(t, func() bool { looks++; return looks%2 == 0 })
	assert.Equal(t, long, chain(&w, long), "somebody has taken them each time")
	network(t, func() bool { return false })
	assert.Equal(t, long, chain(&w, long))
}

// TestStayed: a wait that something has kept from parking does not begin a new chain.
func TestStayed(t *testing.T) {
	rich(t)
	network(t, func() bool { return true })
	var w Waiter
	require.Less(t, chain(&w, time.Second), time.Second)
	for range 3 {
		since := w.since
		w.Stayed()
		for Clock()-since <= chainAgain {
		}
		assert.False(t, w.Spin(Looks, func() bool { return true }, func() bool { return true }))
	}
	w.Parked(0, 0, Clock())
	assert.True(t, w.Spin(Looks, func() bool { return true }, func() bool { return true }))
}

// TestBusyPollLooksAtTheNetwork though what a wait looks for is always there.
func TestBusyPollLooksAtTheNetwork(t *testing.T) {
	rich(t)
	network(t, func() bool { return true })
	var w Waiter
	w.SetBusyPoll(time.Second)
	begin := Clock()
	for w.Spin(Looks, func() bool { return true }, func() bool { return true }) {
		require.Less(t, Clock()-begin, time.Second, "nothing parks")
	}
}

// TestStepsLookAtTheNetwork too, and a wait that they have left for it parks.
func TestStepsLookAtTheNetwork(t *testing.T) {
	rich(t)
	network(t, func() bool { return true })
	var w Waiter
	left := func() bool { // neither in vain, nor because the processor was wanted
		process.left = saved
		w = Waiter{pure: pureLeast, score: most, wake: int32(longest)}
		w.Parked(0, 0, Clock())
		require.Equal(t, longest, w.limit())
		begin := Clock()
		require.False(t, w.Spin(Looks, never, never))
		assert.GreaterOrEqual(t, Clock()-begin, chainTime)
		return w.need == 0
	}
	assert.Eventually(t, left, 10*time.Second, time.Millisecond)

	w.SetBusyPoll(time.Second)
	begin := Clock()
	require.False(t, w.Spin(Looks, never, never))
	assert.Less(t, Clock()-begin, time.Second)
}

// TestChainYields: goroutines that are ready to run get their turn beside a chain, though
// there is one P.
func TestChainYields(t *testing.T) {
	rich(t)
	runtime.GOMAXPROCS(1)
	looks, yields := 0, 0
	network(t, func() bool { looks++; return false })
	old := yield
	defer func() { yield = old }()
	yield = func() { yields++; old() }
	var w Waiter
	for begin := Clock(); looks < 10 && Clock()-begin < 10*time.Second; {
		chain(&w, time.Millisecond)
	}
	assert.GreaterOrEqual(t, looks, 10)
	assert.Equal(t, looks, yields)
}

// TestPending: what has come for a descriptor that the runtime polls shows until somebody
// takes it.
func TestPending(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "eventfd")
	defer f.Close()
	require.NoError(t, f.SetDeadline(time.Time{}))
	require.Positive(t, netpoller())
	seen := false
	for begin := time.Now(); !seen && time.Since(begin) < 10*time.Second; {
		_, err := unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		require.NoError(t, err)
		seen = pending() // unless a thread has been faster
	}
	assert.True(t, seen)
	assert.Eventually(t, func() bool { return !pending() }, 10*time.Second, time.Millisecond)
}

func BenchmarkPending(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		pending()
	}
}
