package nic

import (
	"math"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// TestFind: an access needs a registered region, its right, and bounds that neither exceed the
// region nor wrap around.
func TestFind(t *testing.T) {
	var table Regions
	mem := make([]byte, 100)
	region, err := table.Register(mem, rdma.RemoteRead)
	require.NoError(t, err)
	assert.NotZero(t, region.STag)
	for _, v := range []struct {
		what  string
		tag   rdma.STag
		va, n uint64
		need  rdma.Access
		want  Reason
		fits  bool
	}{
		{"all", region.STag, 0, 100, rdma.RemoteRead, 0, true},
		{"the end", region.STag, 99, 1, rdma.RemoteRead, 0, true},
		{"an unknown STag", region.STag + 1, 0, 1, rdma.RemoteRead, Unregistered, false},
		{"no STag", 0, 0, 1, rdma.RemoteRead, Unregistered, false},
		{"the other right", region.STag, 0, 1, rdma.RemoteWrite, Forbidden, false},
		{"a byte too many", region.STag, 0, 101, rdma.RemoteRead, OutOfBounds, false},
		{"a byte further", region.STag, 1, 100, rdma.RemoteRead, OutOfBounds, false},
		{"an end that wraps to 0", region.STag, math.MaxUint64, 1, rdma.RemoteRead, Wraps, false},
		{"an end that wraps into the region", region.STag, math.MaxUint64, 50, rdma.RemoteRead, Wraps, false},
	} {
		r, denied := table.Find(v.tag, v.va, v.n, v.need)
		if !v.fits {
			require.NotNil(t, denied, v.what)
			assert.Equal(t, v.want, denied.Reason, v.what)
			continue
		}
		require.Nil(t, denied, v.what)
		got := r.Hold(v.va, int(v.n))
		require.Len(t, got, int(v.n), v.what)
		assert.Same(t, &mem[v.va], &got[0], v.what)
		r.Release()
	}
}

// TestRemove: a region that was removed can neither be found nor held, and Remove waits for the
// goroutine that holds it.
func TestRemove(t *testing.T) {
	var table Regions
	region, err := table.Register(make([]byte, 10), rdma.RemoteWrite)
	require.NoError(t, err)
	r, denied := table.Find(region.STag, 0, 10, rdma.RemoteWrite)
	require.Nil(t, denied)
	require.NotNil(t, r.Hold(0, 10))
	removed := make(chan bool)
	go func() { removed <- table.Remove(region.STag) }()
	select {
	case <-removed:
		t.Fatal("Remove did not wait")
	default:
	}
	assert.True(t, r.Held())
	r.Release()
	assert.True(t, <-removed)
	assert.True(t, r.Ended())
	assert.Nil(t, r.Hold(0, 10))
	assert.False(t, table.Remove(region.STag))
	_, denied = table.Find(region.STag, 0, 10, rdma.RemoteWrite)
	assert.NotNil(t, denied)
}

// TestCloseRegions: Close ends all regions, and Register fails afterwards.
func TestCloseRegions(t *testing.T) {
	var table Regions
	region, err := table.Register(make([]byte, 10), rdma.RemoteRead)
	require.NoError(t, err)
	r, denied := table.Find(region.STag, 0, 1, rdma.RemoteRead)
	require.Nil(t, denied)
	table.Close()
	assert.True(t, r.Ended())
	_, err = table.Register(make([]byte, 10), rdma.RemoteRead)
	assert.ErrorIs(t, err, net.ErrClosed)
}
