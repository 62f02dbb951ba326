package lookout

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFor(t *testing.T) {
	var h Habit
	calls := 0
	assert.True(t, h.For(func() bool { calls++; return calls == 2 }))
	assert.Equal(t, 2, calls)
}

// TestForInVain: each time in vain it looks only once for twice as many calls as
// before, until it finds something again.
func TestForInVain(t *testing.T) {
	var h Habit
	never := func() (calls int) {
		assert.False(t, h.For(func() bool { calls++; return false }))
		return calls
	}
	for _, rests := range []int{1, 2, 4, 8} {
		assert.Greater(t, never(), 1)
		for range rests {
			assert.Equal(t, 1, never())
		}
	}
	assert.True(t, h.For(func() bool { return true }), "what is there at once is not looked for")
	second := false
	assert.True(t, h.For(func() bool { defer func() { second = true }(); return second }))
	assert.Greater(t, never(), 1)
	assert.Equal(t, 1, never())
	assert.Greater(t, never(), 1)
}
