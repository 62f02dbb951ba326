package spin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// on calls For, whose n-th look finds something, and returns how many looks there were.
func on(h *Habit, n int, worth bool) (looks int) {
	h.For(func() (bool, bool) { looks++; return looks == n, worth })
	return looks
}

func TestFor(t *testing.T) {
	rich(t)
	var h Habit
	assert.Equal(t, 1, on(&h, 1, true), "what is there at once is not looked for")
	assert.Equal(t, 2, on(&h, 2, true))
	assert.Greater(t, on(&h, 0, false), 1, "it has paid")
}

// TestForInVain: after each time in vain, twice as many calls as before look only once, until
// polling pays again.
func TestForInVain(t *testing.T) {
	rich(t)
	var h Habit
	for _, rests := range []int{1, 2, 4, 8} {
		assert.Greater(t, on(&h, 0, false), 1)
		for range rests {
			assert.Equal(t, 1, on(&h, 0, false))
		}
	}
	h.looked(true)
	assert.Greater(t, on(&h, 0, false), 1)
	assert.Equal(t, 1, on(&h, 0, false))
	assert.Greater(t, on(&h, 0, false), 1)
}

// TestForNotWorthIt: something else arrived, or it arrived while another thread had the processor.
func TestForNotWorthIt(t *testing.T) {
	rich(t)
	var h Habit
	assert.Equal(t, 2, on(&h, 2, false))
	assert.Equal(t, 1, on(&h, 2, true), "the last time was in vain")

	h = Habit{}
	looks := 0
	h.For(func() (bool, bool) {
		if looks++; looks == 2 {
			pass(lookLong)
		}
		return looks == 2, true
	})
	assert.Equal(t, 2, looks)
	assert.Equal(t, 1, on(&h, 2, true), "the last time was in vain")
}

// TestForHasABudget: For does not poll without a budget, and one goroutine of a process does at a time.
func TestForHasABudget(t *testing.T) {
	rich(t)
	var h Habit
	_, ok := process.begin(&process.looks, longest)
	require.True(t, ok)
	assert.Equal(t, 1, on(&h, 2, true))
	process.end(&process.looks, time.Hour)
	assert.Equal(t, 1, on(&h, 2, true))
	process.left = saved
	assert.Equal(t, 2, on(&h, 2, true))
}
