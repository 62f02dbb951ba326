//go:build linux

package shm

import (
	"bytes"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// TestUnreadMessagesHoldNoMoreThanPromised: between two messages that the program does not read, the peer
// sends others that are released at once.
func TestUnreadMessagesHoldNoMoreThanPromised(t *testing.T) {
	const (
		buffers, size = 64, 16 << 10
		messages      = 20
	)
	a, b := pairOf(t, testConfig)
	defer a.Close()
	defer b.Close()
	b.ProvideReceive(buffers, size)
	wcs := make([]rdma.Completion, 16)
	take := func(n int) (last rdma.Completion) {
		t.Helper()
		for n > 0 {
			k, err := b.Wait(wcs[:min(n, len(wcs))])
			require.NoError(t, err)
			last = wcs[k-1]
			if n -= k; last.Buffer.Bytes[0] == 0 {
				for _, wc := range wcs[:k] {
					wc.Buffer.Release()
				}
			}
		}
		return last
	}
	fillers := make([]rdma.SendWR, 16)
	for i := range fillers {
		fillers[i].Header = make([]byte, 16)
	}
	before := liveHeap()
	var kept []rdma.Completion
	for i := range byte(messages) {
		n, err := a.PostSend([]rdma.SendWR{{Header: []byte{i + 1}, Payload: make([]byte, 9000)}})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		kept = append(kept, take(1))
		for range bigChunk / 16 / len(fillers) {
			n, err := a.PostSend(fillers)
			require.NoError(t, err)
			take(n)
		}
	}
	held := liveHeap() - before
	t.Logf("%d KB", held>>10)
	// As much as is promised in chunks, as much in messages with memory of their own, and two
	// chunks.
	assert.Less(t, held, buffers*size*5/2+3*bigChunk)
	for i, wc := range kept {
		assert.EqualValues(t, i+1, wc.Buffer.Bytes[0])
		wc.Buffer.Release()
	}
	assert.LessOrEqual(t, b.rx.buffers.Held(), int64(bigChunk))
}

// leavesNothing returns a function that checks that there are as many goroutines, descriptors and areas
// as now, and about as many bytes on the heap.
func leavesNothing(t *testing.T) (check func()) {
	t.Helper()
	count := func() [3]int {
		maps, err := os.ReadFile("/proc/self/maps")
		require.NoError(t, err)
		return [3]int{runtime.NumGoroutine(), descriptors(t), bytes.Count(maps, []byte("memfd:sdp"))}
	}
	x, y := socketPair(t) // with them, the runtime opens descriptors of its own, which stay
	x.Close()
	y.Close()
	before, heap := count(), liveHeap()
	return func() {
		t.Helper()
		assert.Eventually(t, func() bool {
			now := count()
			return now[0] <= before[0]+1 && now[1] <= before[1] && now[2] <= before[2] // Eventually has one of its own
		}, time.Minute, time.Millisecond, "goroutines, descriptors, areas: %v before", before)
		assert.Less(t, liveHeap(), heap+1<<20, "bytes on the heap")
	}
}

// liveHeap returns how many bytes are reachable on the heap. The contents of a sync.Pool survive one
// collection.
func liveHeap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
