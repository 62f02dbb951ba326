//go:build linux && cgo

package verbs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// TestThrough: a Write that does not fit continues where it stopped when it is posted again. Each
// byte is sent once, to its place, and the last piece says that it is the last. Another Write starts
// from its beginning, and so does the same Write once it was completed.
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
	var progress bounce
	wr := rdma.WriteWR{ID: 9, Local: content, STag: stag, VA: va}
	for range 2 {
		clear(target)
		pieces, lasts = 0, 0
		for _, free := range []int{2, 0, 3} {
			rooms = free
			assert.Equal(t, rdma.ErrNoRoom, progress.carry(wr, maxMessage, room, put))
			assert.Zero(t, lasts)
		}
		rooms = 100
		require.NoError(t, progress.carry(wr, maxMessage, room, put))
		assert.Equal(t, 6, pieces)
		assert.Equal(t, 1, lasts)
		assert.Equal(t, content, target)
	}

	rooms, pieces = 1, 0
	require.Equal(t, rdma.ErrNoRoom, progress.carry(wr, maxMessage, room, put))
	other := wr
	other.Local = content[:2*maxMessage]
	rooms = 100
	require.NoError(t, progress.carry(other, maxMessage, room, func(piece rdma.WriteWR, last bool) error { pieces++; return nil }))
	assert.Equal(t, 3, pieces, "all of the other")
}
