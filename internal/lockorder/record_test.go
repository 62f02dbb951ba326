//go:build lockorder && (amd64 || arm64)

package lockorder

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The classes of the tests. Each test has its own, because the record is one for the process.
type (
	first[T any]  struct{}
	second[T any] struct{}
	third[T any]  struct{}
)

// violation calls f and returns what it panics with, or "".
func violation(f func()) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprint(r)
		}
	}()
	f()
	return ""
}

// nested takes and releases two locks.
func nested(outer, inner sync.Locker) func() {
	return func() {
		outer.Lock()
		defer outer.Unlock()
		inner.Lock()
		defer inner.Unlock()
	}
}

// TestInversion is found although no goroutine waits, and the two orders occur in different
// goroutines and with different locks.
func TestInversion(t *testing.T) {
	type of struct{}
	var a, c Mutex[first[of]]
	var b, d Mutex[second[of]]
	done := make(chan string)
	go func() { done <- violation(nested(&a, &b)) }()
	require.Empty(t, <-done)
	require.Empty(t, violation(nested(&c, &d)))

	text := violation(nested(&d, &c))
	assert.Contains(t, text, "wrong order")
	assert.Equal(t, 4, strings.Count(text, ".nested."), "all four places are in\n%s", text)
	assert.Empty(t, violation(nested(&a, &b)), "the right order is still right")
}

// TestCycle of three orders, of which no two are opposite.
func TestCycle(t *testing.T) {
	type of struct{}
	var a Mutex[first[of]]
	var b Mutex[second[of]]
	var c Mutex[third[of]]
	require.Empty(t, violation(nested(&a, &b)))
	require.Empty(t, violation(nested(&b, &c)))
	assert.Contains(t, violation(nested(&c, &a)), "wrong order")
}

// TestDocumentedOrder holds before anything has been taken in that order.
func TestDocumentedOrder(t *testing.T) {
	r := locks
	defer func() { locks = r }()
	locks = newRecord(order)
	var monitor Mutex[IdleMonitor]
	var send Mutex[ConnSend]
	assert.Contains(t, violation(nested(&monitor, &send)), "ConnState before IdleMonitor is the documented order")
	assert.Empty(t, violation(nested(&send, &monitor)))
}

// TestTwoLocksOfOneClass have no order.
func TestTwoLocksOfOneClass(t *testing.T) {
	type of struct{}
	var a, b Mutex[first[of]]
	assert.Contains(t, violation(nested(&a, &b)), "wrong order")
	assert.Contains(t, violation(nested(&a, &a)), "wrong order")
}

// TestTryLockInAnyOrder: it does not wait. What it has taken is held like any other lock.
func TestTryLockInAnyOrder(t *testing.T) {
	type of struct{}
	var a Mutex[first[of]]
	var b Mutex[second[of]]
	require.Empty(t, violation(nested(&a, &b)))
	assert.Empty(t, violation(func() {
		b.Lock()
		require.True(t, a.TryLock())
		a.Unlock()
		b.Unlock()
	}))
	assert.Contains(t, violation(func() {
		require.True(t, b.TryLock())
		defer b.Unlock()
		a.Lock()
	}), "wrong order")
}

// TestCond: a goroutine that waits on a condition does not hold the lock.
func TestCond(t *testing.T) {
	type of struct{}
	var a Mutex[first[of]]
	var b Mutex[second[of]]
	require.Empty(t, violation(nested(&a, &b)))
	cond, waits, done := sync.NewCond(&b), false, make(chan string)
	go func() {
		done <- violation(func() {
			b.Lock()
			waits = true
			for waits {
				cond.Wait()
			}
			b.Unlock()
			nested(&a, &b)()
		})
	}()
	for over := false; !over; {
		b.Lock()
		over, waits = waits, false
		cond.Signal()
		b.Unlock()
	}
	assert.Empty(t, <-done)
	assert.NotContains(t, locks.held, goroutine())
}

// TestUnlockElsewhere: a goroutine may unlock what another one has locked.
func TestUnlockElsewhere(t *testing.T) {
	type of struct{}
	var a Mutex[first[of]]
	var b Mutex[second[of]]
	require.Empty(t, violation(nested(&a, &b)))
	b.Lock()
	done := make(chan bool)
	go func() {
		b.Unlock()
		close(done)
	}()
	<-done
	assert.Empty(t, violation(nested(&a, &b)))
}

// TestAllocs: a lock that is taken again allocates nothing, so tests that count allocations can run.
func TestAllocs(t *testing.T) {
	type of struct{}
	var a Mutex[first[of]]
	var b Mutex[second[of]]
	assert.Zero(t, testing.AllocsPerRun(100, nested(&a, &b)))
}
