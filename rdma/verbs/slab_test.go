//go:build linux

package verbs

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func newSlabs(limit int64) *slabs { return &slabs{limit: func() int64 { return limit }} }

// TestSlabsStopAtTheLimit: growth leaves a quarter of the limit to new connections, and these stop at
// the limit. The error says what is in use.
func TestSlabsStopAtTheLimit(t *testing.T) {
	s := newSlabs(16 * pageSize)
	_, err := s.get(12*pageSize, growing)
	require.NoError(t, err)
	_, err = s.get(1, growing)
	require.ErrorContains(t, err, "48 of 48 KB in use by connections, need 4 KB more; raise SDP_MEMORY or RLIMIT_MEMLOCK")
	four, err := s.get(4*pageSize, opening)
	require.NoError(t, err)
	_, err = s.get(1, opening)
	require.ErrorContains(t, err, "of 64 KB in use")
	_, err = s.get(1, needed)
	require.NoError(t, err, "a message that was accepted is sent")
	s.put(four)
	_, err = s.get(3*pageSize, opening)
	require.NoError(t, err)
}

// TestSlabsDoNotOverlap: slices in use have no byte in common, and pages that were given back are used
// again, empty, without another mapping.
func TestSlabsDoNotOverlap(t *testing.T) {
	s := newSlabs(1 << 40)
	var all [][]byte
	fill := func(b []byte, v byte) {
		require.Equal(t, len(b), bytes.Count(b, []byte{0}))
		copy(b, bytes.Repeat([]byte{v}, len(b)))
	}
	for i := range 60 {
		b, err := s.get((1+i%7)*pageSize-i, growing)
		require.NoError(t, err)
		require.Zero(t, len(b)%pageSize)
		fill(b, byte(i+1))
		all = append(all, b)
	}
	require.Len(t, s.all, 1)
	for i, b := range all {
		require.Equal(t, len(b), bytes.Count(b, []byte{byte(i + 1)}))
		if i%2 == 0 {
			s.put(b)
		}
	}
	two, err := s.get(2*pageSize, growing) // the first hole has one page
	require.NoError(t, err)
	fill(two, 101)
	for i := range 30 {
		b, err := s.get((1+2*i%7)*pageSize, growing)
		require.NoError(t, err)
		fill(b, 100)
	}
	assert.Len(t, s.all, 1)
	for i, b := range all {
		if i%2 == 1 {
			require.EqualValues(t, i+1, b[0])
			require.EqualValues(t, i+1, b[len(b)-1])
		}
	}
}

// TestLongSlice: a slice that is longer than a slab is unmapped when it is given back; a slab is kept.
func TestLongSlice(t *testing.T) {
	s := newSlabs(1 << 40)
	long, err := s.get(slabSize+1, growing)
	require.NoError(t, err)
	require.Len(t, long, slabSize+pageSize)
	whole, err := s.get(slabSize, growing)
	require.NoError(t, err)
	require.Len(t, s.all, 2)
	s.put(long)
	s.put(whole)
	assert.Len(t, s.all, 1)
	assert.Zero(t, s.used)
	assert.Panics(t, func() { s.put(make([]byte, pageSize)) })
}

// TestLockedSlab: memory that the kernel does not take back, because the program has locked all of its
// memory, does not show the next connection what the last one has sent.
func TestLockedSlab(t *testing.T) {
	s := newSlabs(1 << 40)
	b, err := s.get(pageSize, growing)
	require.NoError(t, err)
	if err := unix.Mlock(b); err != nil {
		t.Skip("missing: the right to lock a page: ", err)
	}
	defer unix.Munlock(b)
	copy(b, "secret")
	s.put(b)
	again, err := s.get(pageSize, growing)
	require.NoError(t, err)
	require.Same(t, &b[0], &again[0])
	require.Equal(t, make([]byte, len(again)), again)
}
