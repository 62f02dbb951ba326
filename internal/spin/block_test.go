//go:build linux

package spin

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// waiting replaces the result of runnable.
func waiting(t *testing.T, is bool) {
	t.Helper()
	old := runnable
	t.Cleanup(func() { runnable = old })
	runnable = func() bool { return is }
}

// quick returns a Waiter whose last waits were short.
func quick() *Waiter {
	w := new(Waiter)
	for range blockAfter {
		w.Lasted(BlockMost / 2)
	}
	w.since = Clock()
	return w
}

// TestBlock: a wait blocks after short waits, unless another one does.
func TestBlock(t *testing.T) {
	rich(t)
	waiting(t, false)
	network(t, func() bool { return false })
	w := new(Waiter)
	for range blockAfter {
		require.False(t, w.Block(), "too early")
		w.Lasted(BlockMost / 2)
	}
	require.True(t, w.Block())
	other := quick()
	assert.False(t, other.Block(), "another one blocks")
	w.Blocked()
	require.True(t, other.Block())
	other.Blocked()
	other.Lasted(BlockMost)
	assert.False(t, other.Block(), "the last wait was long")
}

// TestBlockGivesWay: a wait does not block if goroutines wait for a P, or for the network.
func TestBlockGivesWay(t *testing.T) {
	rich(t)
	events := false
	network(t, func() bool { return events })
	waiting(t, true)
	w := quick()
	assert.False(t, w.Block(), "a goroutine waits for a P")
	waiting(t, false)
	require.True(t, w.Block())
	w.Blocked()

	events = true
	blocked := 0
	for begin := Clock(); w.Block(); blocked++ {
		w.Blocked()
		require.Less(t, Clock()-begin, time.Second, "nobody takes the network's events")
	}
	assert.Positive(t, blocked, "events that were found once")
	w.Woken()
	require.True(t, w.Block(), "after a park")
	w.Blocked()

	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	assert.False(t, quick().Block(), "there is one P")
}
