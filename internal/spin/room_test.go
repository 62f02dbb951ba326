//go:build linux

package spin

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fill calls Spin until the n-th look, and returns how many there were.
func (r *Room) fill(n int) (looks int) {
	r.Spin(func() bool { looks++; return looks == n })
	return looks
}

// TestRoomGivesUp: each time in vain it rests for twice as many calls, until looking pays.
func TestRoomGivesUp(t *testing.T) {
	rich(t)
	network(t, func() bool { return false })
	var r Room
	for _, rests := range []int{1, 2, 4, 8, 16, 32, mostVain, mostVain} {
		process.left = saved
		require.Positive(t, r.fill(0))
		for range rests {
			require.Zero(t, r.fill(0))
		}
	}
	process.left = saved
	assert.Equal(t, 3, r.fill(3))
	assert.Equal(t, 2, r.fill(2), "it has paid")
	assert.Positive(t, r.fill(0))
	assert.Zero(t, r.fill(0), "the last time was in vain")
	assert.Positive(t, r.fill(0), "but the first after one that paid")
}

// TestRoomIsCharged: what was in vain, and what lasted longer than being woken would have.
func TestRoomIsCharged(t *testing.T) {
	rich(t)
	network(t, func() bool { return false })
	var r Room
	for used := 0; ; used++ {
		require.LessOrEqual(t, used, 1000, "the budget does not end")
		before := process.left
		r.rest = 0
		if r.fill(0) == 0 {
			assert.Negative(t, before)
			break
		}
	}
	rich(t)
	r.rest = 0
	require.Equal(t, 2, r.fill(2))
	assert.Equal(t, saved, process.left, "two looks are free")
}

// TestRoomLeavesTheNetwork: it does not go on while events stay with the kernel, and that
// says nothing about whether looking pays.
func TestRoomLeavesTheNetwork(t *testing.T) {
	rich(t)
	asked := 0
	network(t, func() bool { asked++; return true })
	var r Room
	r.fill(0)
	assert.Equal(t, 2, asked)
	assert.Zero(t, r.rest)
	assert.Zero(t, r.fill(0), "still")
}

// TestRoomOff: no look where the program wants none.
func TestRoomOff(t *testing.T) {
	rich(t)
	var r Room
	r.SetBusyPoll(Off)
	assert.Zero(t, r.fill(1))
	r.SetBusyPoll(0)
	assert.Equal(t, 1, r.fill(1))
}
