//go:build linux

package shm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/budget"
	"github.com/gosdp/gosdp/rdma"
)

// TestBigRingIsCharged: the big ring is charged to the budget of the end that writes it. Without room
// there, the direction stays in the small ring and continues.
func TestBigRingIsCharged(t *testing.T) {
	defer budget.Process.SetLimit(0)
	before := budget.Process.Used()
	a, b := pairOf(t, testConfig)
	defer a.Close()
	defer b.Close()
	b.ProvideReceive(64, 64<<10)
	var wcs [16]rdma.Completion
	send := func(n int) {
		t.Helper()
		sent, err := a.PostSend([]rdma.SendWR{{Payload: make([]byte, n)}})
		require.NoError(t, err)
		require.Equal(t, 1, sent)
		got, err := b.Poll(wcs[:])
		require.NoError(t, err)
		require.Equal(t, 1, got)
		assert.Len(t, wcs[0].Buffer.Bytes, n)
		wcs[0].Buffer.Release()
	}

	budget.Process.SetLimit(before + bigRing - 1)
	assert.Equal(t, narrow, a.Width(60_000))
	assert.Equal(t, 100, a.Width(100))
	for range 100 {
		send(narrow)
	}
	sent, err := a.PostSend([]rdma.SendWR{{Payload: make([]byte, narrow)}, {Payload: make([]byte, narrow)}, {Payload: make([]byte, narrow)}})
	require.NoError(t, err)
	assert.Less(t, sent, 3, "the small ring is full")
	assert.True(t, a.Busy())
	n, err := b.Poll(wcs[:])
	require.NoError(t, err)
	assert.Equal(t, sent, n)
	for i := range n {
		wcs[i].Buffer.Release()
	}
	require.NoError(t, a.WaitRoom())
	assert.True(t, inSmallRing(a))
	assert.Equal(t, before, budget.Process.Used())

	budget.Process.SetLimit(before + bigRing)
	assert.Equal(t, 60_000, a.Width(60_000))
	send(60_000)
	assert.False(t, inSmallRing(a))
	assert.Equal(t, before+bigRing, budget.Process.Used())
	a.Shrink()
	assert.True(t, inSmallRing(a))
	assert.Equal(t, before, budget.Process.Used())

	budget.Process.SetLimit(1)
	send(60_000) // from a caller that has not asked Width
	assert.Equal(t, before+bigRing, budget.Process.Used())
	a.Close()
	assert.Equal(t, before, budget.Process.Used())
}
