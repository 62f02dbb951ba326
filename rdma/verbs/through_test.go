//go:build linux && cgo

package verbs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// TestThrough: a Write that is longer than there is room goes on where it stopped
// when it is posted again, each byte goes once and to its place, and the last piece
// says so. Another Write begins at its beginning, and so does the same once more.
func TestThrough(t *testing.T) {
	const stag, va = 7, 1 << 20
	content := make([]byte, 5*maxMessage+3)
	for i := range content {
		content[i] = byte(i ^ i>>8 ^ i>>16)
	}
	target := make([]byte, len(content))
	var pieces, lasts, rooms int
	room := func(int) bool { rooms--; return rooms >= 0 }
	put := func(piece rdma.WriteWR, last bool) error {
		require.EqualValues(t, stag, piece.STag)
		require.EqualValues(t, 9, piece.ID)
		copy(target[piece.VA-va:], piece.Local)
		pieces++
		if last {
			lasts++
			require.Equal(t, uint64(va+len(content)), piece.VA+uint64(len(piece.Local)))
		}
		return nil
	}
	var way through
	wr := rdma.WriteWR{ID: 9, Local: content, STag: stag, VA: va}
	for range 2 {
		clear(target)
		pieces, lasts = 0, 0
		for _, free := range []int{2, 0, 3} {
			rooms = free
			assert.Equal(t, rdma.ErrNoRoom, way.carry(wr, room, put))
			assert.Zero(t, lasts)
		}
		rooms = 100
		require.NoError(t, way.carry(wr, room, put))
		assert.Equal(t, 6, pieces)
		assert.Equal(t, 1, lasts)
		assert.Equal(t, content, target)
	}

	rooms, pieces = 1, 0
	require.Equal(t, rdma.ErrNoRoom, way.carry(wr, room, put))
	other := wr
	other.Local = content[:2*maxMessage]
	rooms = 100
	require.NoError(t, way.carry(other, room, func(piece rdma.WriteWR, last bool) error { pieces++; return nil }))
	assert.Equal(t, 3, pieces, "all of the other")
}
