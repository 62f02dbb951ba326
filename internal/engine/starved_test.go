package engine

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/budget"
)

// hoard takes as much of the budget of the process as take allows, each time more is called, until free
// is called, or the test ends.
func hoard(t *testing.T, take func(int) bool) (more, free func()) {
	used := 0
	more = func() {
		for _, part := range []int{1 << 20, 4 << 10} {
			for take(part) {
				used += part
			}
		}
	}
	free = func() {
		budget.Process.Give(used)
		used = 0
	}
	t.Cleanup(func() { free() })
	more()
	return more, free
}

// TestWritesGoOnOnceThereIsMemory: two ends that write before they read, and have stalled because the
// budget is used up, go on when it is free again, however long that takes.
func TestWritesGoOnOnceThereIsMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("missing: time, because -short is set; it waits until the idle monitor gives up on other connections")
	}
	hoard(t, budget.Process.TakeSpare)
	c, s := pair(t) // with the least
	more, free := hoard(t, budget.Process.Take)
	const n = 1500 << 10 // more than other connections may give back meanwhile
	done := make(chan error, 2)
	for _, end := range []*Conn{c, s} {
		require.NoError(t, end.SetDeadline(time.Now().Add(soon)))
		go func() {
			_, err := end.Write(make([]byte, n))
			if err == nil {
				_, err = io.ReadFull(end, make([]byte, n))
			}
			done <- err
		}()
	}
	stuck := time.Now()
	require.Eventually(t, func() bool {
		more() // what connections of other tests have given back
		for _, end := range []*Conn{c, s} {
			end.mu.Lock()
			moves := !end.out.starved
			end.mu.Unlock()
			if moves {
				stuck = time.Now()
			}
		}
		return time.Since(stuck) > (2*idleTicks+restPause)*idleTick
	}, soon, idleTick)
	free()
	require.NoError(t, await(t, done, soon))
	require.NoError(t, await(t, done, soon))
}

// TestRepeatedWritesAreHelped: a Write that moves nothing before its deadline does not pass for
// activity. Otherwise two ends that write before they read, and repeat their Writes, never make progress.
func TestRepeatedWritesAreHelped(t *testing.T) {
	hoard(t, budget.Process.TakeSpare)
	c, s := pair(t)
	const n = 1500 << 10
	done := make(chan error, 2)
	for _, end := range []*Conn{c, s} {
		go func() {
			b, limit := make([]byte, n), time.Now().Add(soon)
			var err error
			for err == nil && len(b) > 0 && time.Now().Before(limit) {
				end.SetWriteDeadline(time.Now().Add(3 * time.Millisecond))
				var m int
				if m, err = end.Write(b); errors.Is(err, os.ErrDeadlineExceeded) {
					err = nil
				}
				b = b[m:]
			}
			assert.Empty(t, len(b), "bytes that could not be written")
			end.SetReadDeadline(time.Now().Add(soon))
			if err == nil {
				_, err = io.ReadFull(end, make([]byte, n))
			}
			done <- err
		}()
	}
	require.NoError(t, <-done)
	require.NoError(t, <-done)
}

// TestBlockedWriteIsLeft: the idle monitor does not visit a connection for ever only because its peer does
// not read.
func TestBlockedWriteIsLeft(t *testing.T) {
	if testing.Short() {
		t.Skip("missing: time, because -short is set; it waits until the idle monitor gives up")
	}
	c, _ := pair(t)
	done := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, 32<<20))
		done <- err
	}()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.out.starved && !c.idle.listed
	}, soon, idleTick)
	require.NoError(t, c.Close())
	assert.Error(t, <-done)
}
