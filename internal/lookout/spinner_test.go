package lookout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// attempt goes on until a wait spins, and returns how many did not.
func attempt(s *Spinner, found bool) (parked int) {
	for !s.Begin() {
		parked++
	}
	s.End(found)
	return parked
}

// TestSpinner spins while that pays off; attempts that fail become rarer, and short
// waits bring them back.
func TestSpinner(t *testing.T) {
	var s Spinner
	for range 10 {
		require.Zero(t, attempt(&s, true), "it pays off")
	}
	attempt(&s, false)
	for want := 1; want <= spinMost; want *= 2 {
		require.Equal(t, want, attempt(&s, false), "waits between two attempts that failed")
	}
	require.Equal(t, spinMost, attempt(&s, false))
	for range spinMost / spinHint {
		s.Parked(spinShort)
	}
	assert.Zero(t, attempt(&s, true), "after many waits that were short")
	attempt(&s, false)
	for range spinMost {
		s.Parked(spinShort + time.Microsecond)
	}
	assert.Equal(t, spinMost, attempt(&s, true), "after many that were long")
}

// TestOneSpins: one goroutine of a process at a time.
func TestOneSpins(t *testing.T) {
	var a, b Spinner
	require.True(t, a.Begin())
	assert.False(t, b.Begin())
	a.End(true)
	require.True(t, b.Begin())
	b.End(true)
}
