package verbs

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

// within fails the test unless done is closed in time.
func within(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal(what)
	}
}

// closed returns a channel that is closed when f has returned.
func closed(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// occupy posts an event to each of n queues that lasts until the test calls free. It
// returns when mostDispatching of them are being handled, if there are so many.
func occupy(d *dispatcher, n int) (free func()) {
	held := make(chan struct{})
	started := make(chan struct{}, n)
	for range n {
		d.post(new(eventQueue), func() {
			started <- struct{}{}
			<-held
		})
	}
	for range min(n, mostDispatching) {
		<-started
	}
	return func() { close(held) }
}

// TestDispatcherOrder: the events of each queue are handled one at a time and in the order in which
// they were posted, including events that events post.
func TestDispatcherOrder(t *testing.T) {
	defer goleak.VerifyNone(t)
	const queues, events = 50, 40
	var d dispatcher
	var all [queues]struct {
		eventQueue
		running atomic.Int32
		handled []int
	}
	var posting sync.WaitGroup
	for i := range all {
		q := &all[i]
		handle := func(n int) {
			assert.EqualValues(t, 1, q.running.Add(1))
			q.handled = append(q.handled, n)
			if n == events-1 {
				d.post(&q.eventQueue, func() { q.handled = append(q.handled, events) })
			}
			q.running.Add(-1)
		}
		posting.Go(func() {
			for n := range events {
				d.post(&q.eventQueue, func() { handle(n) })
			}
		})
	}
	posting.Wait()
	within(t, closed(d.wait), "events are left")
	for i := range all {
		require.Len(t, all[i].handled, events+1)
		for n, was := range all[i].handled {
			require.Equal(t, n, was)
		}
	}
	assert.Zero(t, d.running)
}

// TestDispatcherIsBounded: at most mostDispatching events are handled at the same time, however many
// queues there are, and post does not block.
func TestDispatcherIsBounded(t *testing.T) {
	defer goleak.VerifyNone(t)
	var d dispatcher
	var handled atomic.Int32
	free := occupy(&d, mostDispatching)
	for range 1000 {
		d.post(new(eventQueue), func() { handled.Add(1) })
	}
	d.mu.Lock()
	assert.Equal(t, mostDispatching, d.running)
	assert.Len(t, d.ready, 1000)
	d.mu.Unlock()
	assert.Zero(t, handled.Load())
	free()
	within(t, closed(d.wait), "events are left")
	assert.EqualValues(t, 1000, handled.Load())
}

// TestDispatcherTakesTurns: a queue with many events does not delay another.
func TestDispatcherTakesTurns(t *testing.T) {
	defer goleak.VerifyNone(t)
	d := dispatcher{running: mostDispatching} // the test's goroutine alone handles them
	var busy, other eventQueue
	var order []string
	for range 3 {
		d.post(&busy, func() { order = append(order, "busy") })
	}
	d.post(&other, func() { order = append(order, "other") })
	d.work()
	assert.Equal(t, []string{"busy", "other", "busy", "busy"}, order)
}

// TestDispatcherRefusesStrangers: offer refuses events when too many wait, and only then.
func TestDispatcherRefusesStrangers(t *testing.T) {
	defer goleak.VerifyNone(t)
	var d dispatcher
	free := occupy(&d, mostDispatching)
	nothing := func() {}
	for range mostOffered {
		require.True(t, d.offer(new(eventQueue), nothing))
	}
	assert.False(t, d.offer(new(eventQueue), nothing))
	d.post(new(eventQueue), nothing)
	assert.Len(t, d.ready, mostOffered+1)
	free()
	within(t, closed(d.wait), "events are left")
	assert.True(t, d.offer(new(eventQueue), nothing))
	within(t, closed(d.wait), "events are left")
}
