//go:build linux

package spin

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// network replaces the result of pending.
func network(t *testing.T, events func() bool) {
	t.Helper()
	old := pending
	t.Cleanup(func() { pending = old })
	pending = events
}

// chain makes waits that end at the second look, one after the other, and returns how long it took
// until one parked, at most the given time.
func chain(w *Waiter, most time.Duration) time.Duration { return chainOf(w, Looks, most) }

// chainOf is chain for waits that begin with so many looks.
func chainOf(w *Waiter, first int, most time.Duration) time.Duration {
	begin := Clock()
	w.Parked(0, 0, begin)
	for Clock()-begin < most {
		looked := 0
		if !w.Spin(first, func() bool { looked++; return looked > 1 }, func() bool { return true }) {
			return Clock() - begin
		}
	}
	return most
}

// TestChain: waits that end at once park eventually if events stay in the kernel, but not at the
// first look that finds some, and not if there are none.
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

// TestExpensiveLooks: where a look at the network takes long, there are fewer.
func TestExpensiveLooks(t *testing.T) {
	rich(t)
	looks := 0
	network(t, func() bool {
		looks++
		pass(20 * time.Microsecond)
		return false
	})
	var w Waiter
	const long = 40 * time.Millisecond
	require.Equal(t, long, chain(&w, long))
	looks = 0
	require.Equal(t, long, chain(&w, long))
	assert.Less(t, looks, int(long/(chainCosts/2*20*time.Microsecond)), "looks take too much of the time")
}

// TestOwnEvents: a wait for a socket, whose own events are found, parks later, but does.
func TestOwnEvents(t *testing.T) {
	rich(t)
	looks := 0
	network(t, func() bool { looks++; return true })
	w := Waiter{score: most}
	took := chainOf(&w, 0, time.Second)
	assert.Greater(t, took, 2*chainOwn)
	assert.Less(t, took, time.Second, "nothing parks")
	assert.Equal(t, 2, looks)
}

// TestBusyPollLooksAtTheNetwork: a fixed busy-poll time does not prevent looks at the network.
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

// TestStepsLookAtTheNetwork: steps include looks at the network, and a wait that ends for that parks.
func TestStepsLookAtTheNetwork(t *testing.T) {
	rich(t)
	network(t, func() bool { return true })
	w := Waiter{pure: pureLeast, score: most, wake: int32(longest)}
	w.Parked(0, 0, Clock())
	require.Equal(t, longest, w.limit())
	begin := Clock()
	require.False(t, w.Spin(Looks, never, never))
	assert.GreaterOrEqual(t, Clock()-begin, chainTime)
	assert.Zero(t, w.need, "that was not in vain")

	w.SetBusyPoll(time.Second)
	begin = Clock()
	require.False(t, w.Spin(Looks, never, never))
	assert.Less(t, Clock()-begin, time.Second)
}

// TestStepsDoNotCountAsLooks: what a wait's own look takes does not make those at the network rare.
func TestStepsDoNotCountAsLooks(t *testing.T) {
	rich(t)
	looks := 0
	network(t, func() bool { looks++; return false })
	look := func() bool { pass(5 * time.Microsecond); return false }
	for range 100 {
		w := Waiter{pure: pureLeast, score: most, wake: int32(longest)}
		process.left, process.filled = saved, Clock()
		w.Parked(0, 0, Clock())
		w.Spin(Looks, look, never)
	}
	assert.Greater(t, looks, 300, "the clock makes a look take a µs; with its own looks it would be 6")
}

// TestChainYields: goroutines that are ready to run get their turn during a chain, even with one P.
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

// TestBusyPollYields: a goroutine that polls for as long as the program has set yields now and then, so the
// runtime does not interrupt it. It makes no difference whether its waits find something at once.
func TestBusyPollYields(t *testing.T) {
	for name, finds := range map[string]bool{"in vain": false, "finds at once": true} {
		t.Run(name, func(t *testing.T) {
			rich(t)
			monotonic = func() time.Duration { pass(20 * time.Microsecond); return time.Duration(machine.Load()) } // the looks are expensive
			oldYield, oldRunnable := yield, runnable
			defer func() { yield, runnable = oldYield, oldRunnable }()
			runnable = func() bool { return false }
			yields := 0
			yield = func() { yields++ }
			var w Waiter
			w.SetBusyPoll(3 * yieldLatest / 4)
			begin := Clock()
			w.Parked(0, 0, begin)
			for time.Duration(machine.Load())-begin < 100*yieldLatest {
				w.Spin(Looks, func() bool { return finds }, never)
			}
			if finds {
				assert.InDelta(t, 84, yields, 5, "at every third look, 64 times 20 µs apart, and every eighth")
			} else {
				assert.InDelta(t, 99, yields, 2)
			}
		})
	}
}

// TestBusyPollGivesWay: a wait parks before its time is over if another thread needs the processor.
func TestBusyPollGivesWay(t *testing.T) {
	rich(t)
	yields := 0
	schedYield = func() { yields++; pass(4 * time.Millisecond) }
	var w Waiter
	w.SetBusyPoll(time.Second)
	w.Parked(0, 0, Clock())
	assert.False(t, w.Spin(Looks, never, never))
	assert.Equal(t, 1, yields)
}

// TestFindsNetpoller: the instance that was found is the one that polls the runtime's descriptors.
func TestFindsNetpoller(t *testing.T) {
	fd := eventfd(t)
	f := os.NewFile(uintptr(fd), "eventfd")
	defer f.Close()
	require.NoError(t, f.SetDeadline(time.Time{}), "the runtime does not poll it")
	found := findNetpoller()
	require.Positive(t, found)
	assert.Equal(t, found, netpoller())
	polled, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", found))
	require.NoError(t, err)
	assert.Regexp(t, fmt.Sprintf(`(?m)^tfd: +%d `, fd), string(polled))
}

// TestPending: an event is pending until it is taken.
func TestPending(t *testing.T) {
	old := poller.Load()
	defer poller.Store(old)
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC) // no thread of the runtime waits for its events
	require.NoError(t, err)
	defer unix.Close(epoll)
	poller.Store(int32(epoll))
	fd := eventfd(t)
	defer unix.Close(fd)
	require.NoError(t, unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN}))
	assert.False(t, pending())
	_, err = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	require.NoError(t, err)
	assert.True(t, pending())
	assert.True(t, pending())
	_, err = unix.Read(fd, make([]byte, 8))
	require.NoError(t, err)
	assert.False(t, pending())
	poller.Store(-1)
	assert.True(t, pending(), "the runtime's instance was not found")
}

func eventfd(t *testing.T) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	require.NoError(t, err)
	return fd
}

func BenchmarkPending(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		pending()
	}
}
