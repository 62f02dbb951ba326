//go:build linux

package shm

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// TestUnreadMessagesHoldNoMoreThanPromised: between two messages that nobody
// reads the peer sends what is given back at once.
func TestUnreadMessagesHoldNoMoreThanPromised(t *testing.T) {
	const (
		buffers, size = 64, 16 << 10
		messages      = 40
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
	// As much as is promised in chunks and as much in messages by themselves, and
	// two chunks.
	assert.Less(t, held, buffers*size*5/2+3*bigChunk)
	for i, wc := range kept {
		assert.EqualValues(t, i+1, wc.Buffer.Bytes[0])
		wc.Buffer.Release()
	}
	assert.LessOrEqual(t, b.rx.held.Load(), int64(bigChunk))
}

// liveHeap is how many bytes are reachable on the heap. What a sync.Pool has
// survives one collection.
func liveHeap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
