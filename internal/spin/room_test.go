//go:build linux

package spin

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fill calls Spin, whose n-th look finds room, and returns how many looks there were.
func (r *Room) fill(n int) (looks int) {
	r.Spin(func() bool { looks++; return looks == n })
	return looks
}

// TestRoomGivesUp: each time in vain, twice as many calls do not poll, until polling pays.
func TestRoomGivesUp(t *testing.T) {
	rich(t)
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

// TestRoomIsCharged: polling in vain is charged, and so is the time beyond that of a wake-up.
func TestRoomIsCharged(t *testing.T) {
	rich(t)
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

// TestRoomLeavesTheNetwork: polling ends if events stay in the kernel, which does not count as in vain.
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

// TestRoomOff: Room does not poll if the program does not want it.
func TestRoomOff(t *testing.T) {
	rich(t)
	var r Room
	r.SetBusyPoll(Off)
	assert.Zero(t, r.fill(1))
	r.SetBusyPoll(0)
	assert.Equal(t, 1, r.fill(1))
}
