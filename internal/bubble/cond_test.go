package bubble

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// waiter waits until a goroutine wakes it, by a Cond, on which others may wait too.
type waiter struct {
	mu    sync.Mutex
	c     Cond
	woken bool
}

func (w *waiter) wait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.woken {
		w.c.Wait(&w.mu)
	}
}

func (w *waiter) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = true
	w.c.Broadcast()
}

// untilWaited waits until so many goroutines wait.
func (w *waiter) untilWaited(n int32) {
	for {
		w.mu.Lock()
		waiting := w.c.n
		w.mu.Unlock()
		if waiting == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestCond: Broadcast wakes all goroutines that wait, and the Cond then holds no memory.
func TestCond(t *testing.T) {
	var w waiter
	var all sync.WaitGroup
	for range 3 {
		all.Go(w.wait)
	}
	w.untilWaited(3)
	assert.True(t, w.c.Waited())
	w.wake()
	all.Wait()
	assert.Nil(t, w.c.waiters)
	assert.False(t, w.c.Waited())
	w.c.Broadcast()
}

// TestCondAcrossBubbles: goroutines in bubbles and outside wake each other. The runtime ends a
// program that does so through a sync.Cond.
func TestCondAcrossBubbles(t *testing.T) {
	var w waiter
	w.c.Make()
	var all sync.WaitGroup
	bubble := func(t *testing.T, f func()) { synctest.Test(t, func(*testing.T) { f() }) }
	t.Run("woken from outside", func(t *testing.T) {
		all.Go(w.wait)
		all.Go(func() {
			w.untilWaited(3)
			w.wake()
		})
		for range 2 {
			all.Go(func() { bubble(t, w.wait) })
		}
		all.Wait()
	})
	assert.Nil(t, w.c.waiters)
	w.woken = false
	t.Run("woken from a bubble", func(t *testing.T) {
		all.Go(w.wait)
		all.Go(func() { bubble(t, w.wait) })
		w.untilWaited(2)
		bubble(t, w.wake)
		all.Wait()
	})
	assert.Nil(t, w.c.waiters)
}

// TestCondOfABubble: the runtime sees that goroutines of the bubble wait for each other.
func TestCondOfABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w waiter
		w.c.Make()
		go w.wait()
		synctest.Wait()
		assert.True(t, w.c.Waited())
		w.wake()
	})
}
