//go:build linux

package shm

import (
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
)

// contend makes two waits want to poll at once, after which readers that park are watched.
func contend(t *testing.T) {
	t.Helper()
	if runtime.GOMAXPROCS(0) == 1 { // no wait polls then
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	}
	require.Eventually(t, func() bool {
		var a, b spin.Waiter
		a.Hope()
		b.Hope()
		found := func() bool { return true }
		a.Spin(0, func() bool { b.Spin(0, found, found); return true }, found)
		return watched.Possible()
	}, time.Minute, time.Millisecond)
}

// byHand makes the test the only one that calls Look and Leave.
func byHand(t *testing.T) {
	t.Helper()
	was := startWatch
	startWatch = func(*watch) {}
	t.Cleanup(func() { startWatch = was })
	require.Eventually(t, func() bool { return !watched.Runs() }, time.Minute, time.Millisecond)
	watched.mu.Lock()
	watched.round = 1 // of most looks here
	watched.mu.Unlock()
	contend(t)
}

// reader is a goroutine that waits for one message.
type reader struct {
	q    *QueuePair
	peer *QueuePair
	done chan error
}

// readerOf starts a reader and returns when it is parked.
func readerOf(t *testing.T) *reader {
	t.Helper()
	a, b := pairOf(t, testConfig)
	t.Cleanup(func() {
		a.Abort()
		b.Abort()
	})
	return startReader(t, a, b)
}

func startReader(t *testing.T, q, peer *QueuePair) *reader {
	t.Helper()
	r := &reader{q, peer, make(chan error, 1)}
	q.ProvideReceive(16, 4096)
	go func() {
		var wcs [1]rdma.Completion
		for {
			n, err := q.Wait(wcs[:])
			if n > 0 {
				wcs[0].Buffer.Release()
			}
			if n > 0 || err != nil {
				r.done <- err
				return
			}
		}
	}()
	if q.rx.spin.Decides() {
		r.listed(t)
	} else {
		require.Eventually(t, r.sleeps, time.Minute, 10*time.Microsecond)
	}
	return r
}

// listed waits until the reader is parked and on the list. It may have parked while another goroutine
// was at the list.
func (r *reader) listed(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		woken := r.q.bell.in.woken.Load() // and about to leave its place
		if r.place() > 0 {
			return !woken
		}
		if r.sleeps() && !woken {
			contend(t)
			r.q.Wake()
		}
		return false
	}, time.Minute, 50*time.Microsecond, "it is not on the list")
}

// place returns the reader's place on the list, from 1; 0 if it is not there.
func (r *reader) place() int {
	watched.mu.Lock()
	defer watched.mu.Unlock()
	return int(r.q.bell.slot)
}

// sleeps reports whether the peer would ring.
func (r *reader) sleeps() bool { return r.q.theirs().idle.Load() != 0 }

// rang reports whether the peer has ever rung.
func (r *reader) rang() bool { return r.q.theirs().rang.Load() != 0 }

func (r *reader) post(t *testing.T) {
	t.Helper()
	n, err := r.peer.PostSend([]rdma.SendWR{{Header: []byte("message")}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func (r *reader) ends(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(time.Minute):
		require.FailNow(t, "the reader sleeps")
		return nil
	}
}

// TestWatchWakes: a reader on the list is woken by a Look, and its peer does not ring.
func TestWatchWakes(t *testing.T) {
	byHand(t)
	r := readerOf(t)
	assert.True(t, r.sleeps(), "nobody looks yet")
	found, _ := watched.Look(1)
	assert.Zero(t, found)
	assert.False(t, r.sleeps())
	r.post(t)
	assert.False(t, r.rang())
	found, others := watched.Look(1)
	assert.Equal(t, 1, found)
	assert.Equal(t, 1, others)
	assert.NoError(t, r.ends(t))
	assert.Zero(t, r.place())

	contend(t)
	r = startReader(t, r.q, r.peer)
	assert.False(t, r.sleeps(), "the watch has not left")
	r.post(t)
	assert.False(t, r.rang())
	found, others = watched.Look(1)
	assert.Equal(t, 1, found)
	assert.Zero(t, others, "the same reader")
	assert.NoError(t, r.ends(t))

	contend(t)
	r = startReader(t, r.q, r.peer)
	r.post(t)
	found, others = watched.Look(2)
	assert.Equal(t, 1, found)
	assert.Equal(t, 1, others, "another round")
	assert.NoError(t, r.ends(t))
	watched.Leave()
}

// TestWatchLeaves: the peers of readers on the list ring again, and what came before wakes them.
func TestWatchLeaves(t *testing.T) {
	byHand(t)
	r := readerOf(t)
	watched.Look(1)
	watched.Leave()
	assert.True(t, r.sleeps())
	r.post(t)
	assert.True(t, r.rang())
	assert.NoError(t, r.ends(t))

	contend(t)
	r = readerOf(t)
	watched.Look(1)
	r.post(t)
	assert.False(t, r.rang())
	watched.Leave()
	assert.NoError(t, r.ends(t))
	assert.False(t, r.rang())

	contend(t)
	r = readerOf(t)
	assert.True(t, r.sleeps(), "the watch has left")
}

// TestWatchDrains: a reader wakes up when the watch has set its word so often that its socket may be full.
func TestWatchDrains(t *testing.T) {
	byHand(t)
	r := readerOf(t)
	before := r.q.bell.rings.Load()
	most := int32(0)
	for range 3 * drainEvery {
		watched.Look(1)
		watched.Leave()
		most = max(most, r.q.bell.rings.Load())
		r.listed(t)
	}
	assert.Greater(t, most, before)
	assert.LessOrEqual(t, most, int32(drainEvery+3), "it sets the word more often than its socket has room")
	r.post(t)
	assert.NoError(t, r.ends(t))
}

// TestWatchList: the list holds a bounded number of readers, and the one that parked last. The peers of
// all others ring.
func TestWatchList(t *testing.T) {
	const more = 5
	byHand(t)
	var readers []*reader
	for range mostWatched + more {
		readers = append(readers, readerOf(t))
	}
	watched.Look(1)
	out := 0
	for i, r := range readers {
		listed := r.place() > 0
		if !listed {
			out++
		}
		assert.Equal(t, listed, !r.sleeps(), "reader %d", i)
		r.post(t)
		assert.Equal(t, listed, !r.rang(), "reader %d", i)
	}
	assert.Equal(t, more, out)
	assert.Positive(t, readers[len(readers)-1].place())
	found, others := watched.Look(1)
	assert.Equal(t, mostWatched, found)
	assert.Equal(t, mostWatched, others)
	watched.Leave()
	for _, r := range readers {
		assert.NoError(t, r.ends(t))
		assert.Zero(t, r.place())
	}
	assert.Zero(t, watched.n)
}

// TestWatchPlaces: each reader on the list knows its place, also after another one has left.
func TestWatchPlaces(t *testing.T) {
	byHand(t)
	var readers []*reader
	for range 5 {
		readers = append(readers, readerOf(t))
	}
	for at := range readers {
		for _, r := range readers[at:] {
			watched.mu.Lock()
			if assert.Positive(t, r.q.bell.slot) {
				assert.Same(t, &r.q.bell, watched.list[r.q.bell.slot-1])
			}
			watched.mu.Unlock()
		}
		readers[at].post(t) // it wakes up by itself, and leaves the list
		require.NoError(t, readers[at].ends(t))
	}
	assert.Zero(t, watched.n)
}

// TestWatchEvicts: a reader that loses its place while the watch looks at its ring is rung for again, and
// wakes up for what came before.
func TestWatchEvicts(t *testing.T) {
	byHand(t)
	var readers []*reader
	for range mostWatched {
		readers = append(readers, readerOf(t))
	}
	watched.Look(1)
	for at := range 2 {
		watched.mu.Lock()
		first := watched.list[watched.next]
		watched.mu.Unlock()
		i := 0
		for &readers[i].q.bell != first {
			i++
		}
		assert.False(t, readers[i].sleeps())
		if at == 0 {
			readers[i].post(t)
		}
		readerOf(t)
		if at == 0 {
			assert.NoError(t, readers[i].ends(t))
			assert.False(t, readers[i].rang())
			continue
		}
		assert.Zero(t, readers[i].place())
		assert.True(t, readers[i].sleeps())
		readers[i].post(t)
		assert.NoError(t, readers[i].ends(t))
	}
	watched.Leave()
}

// TestWatchDropsIdleReaders: a reader for which nothing has come for many rounds is rung for again.
func TestWatchDropsIdleReaders(t *testing.T) {
	byHand(t)
	r := readerOf(t)
	for round := range uint8(idleRounds) {
		watched.Look(1 + round)
		require.False(t, r.sleeps(), "round %d", round)
	}
	found, _ := watched.Look(1 + idleRounds)
	assert.Zero(t, found)
	assert.Zero(t, r.place())
	assert.True(t, r.sleeps())
	r.post(t)
	assert.True(t, r.rang())
	assert.NoError(t, r.ends(t))

	contend(t)
	r = readerOf(t)
	r.listed(t)
	watched.Look(1 + idleRounds)
	assert.False(t, r.sleeps(), "its rounds are counted from when it came")
	r.post(t)
	watched.Look(1 + idleRounds)
	assert.NoError(t, r.ends(t))
	assert.False(t, r.rang())
	watched.Leave()
}

// TestWatchEnds: a connection may end while the watch looks at its ring.
func TestWatchEnds(t *testing.T) {
	for name, v := range map[string]struct {
		end  func(r *reader)
		want error
	}{
		"closed":        {func(r *reader) { r.q.Close() }, net.ErrClosed},
		"closed there":  {func(r *reader) { r.peer.Close() }, io.EOF},
		"peer has gone": {func(r *reader) { r.peer.bell.conn.Close() }, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			byHand(t)
			r := readerOf(t)
			watched.Look(1)
			go v.end(r)
			assert.ErrorIs(t, r.ends(t), v.want)
			assert.Zero(t, r.place())
			watched.Look(1)
			watched.Leave()
		})
	}
}

// TestWatchWakesForWake: Wake reaches a reader that the watch looks after.
func TestWatchWakesForWake(t *testing.T) {
	byHand(t)
	r := readerOf(t)
	watched.Look(1)
	r.q.Wake()
	r.listed(t)
	r.post(t)
	watched.Look(1)
	assert.NoError(t, r.ends(t))
	watched.Leave()
}

// TestWatchObeysBusyPoll: a connection whose polling the program has set is not on the list.
func TestWatchObeysBusyPoll(t *testing.T) {
	for _, d := range []time.Duration{spin.Off, time.Microsecond} {
		byHand(t)
		a, b := pairOf(t, testConfig)
		a.SetBusyPoll(d)
		r := startReader(t, a, b)
		watched.Look(1)
		assert.Zero(t, r.place())
		assert.True(t, r.sleeps())
		watched.Leave()
		r.post(t)
		assert.NoError(t, r.ends(t))
		a.Abort()
		b.Abort()
	}
}

// TestWatchInBubble: a connection in a bubble is not on the list, because nothing outside may touch it.
func TestWatchInBubble(t *testing.T) {
	byHand(t)
	synctest.Test(t, func(t *testing.T) {
		a, b := pairOf(t, testConfig)
		a.ProvideReceive(16, 4096)
		done := make(chan error, 1)
		go func() {
			var wcs [1]rdma.Completion
			n, err := a.Wait(wcs[:])
			if n > 0 {
				wcs[0].Buffer.Release()
			}
			done <- err
		}()
		r := &reader{q: a, peer: b}
		for !r.sleeps() {
			runtime.Gosched()
		}
		for range 1000 {
			assert.Zero(t, r.place())
			runtime.Gosched()
		}
		r.post(t)
		assert.NoError(t, <-done)
		a.Abort()
		b.Abort()
	})
}

// TestNoRingIsLostBesideTheWatch: as TestNoRingIsLost, on many connections at once, while the watch looks
// and leaves at every moment, or when it decides so itself.
func TestNoRingIsLostBesideTheWatch(t *testing.T) {
	t.Run("at every moment", func(t *testing.T) {
		byHand(t)
		stop := make(chan struct{})
		var watching sync.WaitGroup
		watching.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for range rand.IntN(20) {
					watched.Look(uint8(rand.Uint32()))
					runtime.Gosched()
				}
				watched.Leave()
				for range rand.IntN(20) {
					runtime.Gosched()
				}
			}
		})
		times := 20_000
		if runtime.GOMAXPROCS(0) == 1 { // the goroutine that looks keeps the only P from the network
			times = 200
		}
		talkAtOnce(t, times)
		close(stop)
		watching.Wait()
	})
	t.Run("by itself", func(t *testing.T) {
		contend(t)
		talkAtOnce(t, 20_000)
	})
}

// talkAtOnce moves so many messages in each direction, on eight connections in all.
func talkAtOnce(t *testing.T, times int) {
	t.Helper()
	const pairs = 8
	if testing.Short() {
		times = min(times, 1000)
	}
	var talking sync.WaitGroup
	for range pairs {
		a, b := pairOf(t, testConfig)
		talking.Go(func() { talk(t, a, b, times/pairs) })
	}
	talking.Wait()
}
