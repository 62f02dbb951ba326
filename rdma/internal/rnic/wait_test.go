package rnic

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestUntil: the pauses double up to a millisecond, and done is asked once more at the deadline. In a
// bubble they pass by the machine's clock; the bubble's would stand still if a goroutine of it waited
// for the network.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		begin := time.Now()
		assert.False(t, Until(begin.Add(10*time.Millisecond), func() bool { asked++; return false }))
		assert.Zero(t, time.Since(begin))
		assert.Equal(t, 16, asked)
		assert.True(t, Until(begin, func() bool { return true }))
	})
	begin := time.Now()
	assert.False(t, Until(begin.Add(10*time.Millisecond), func() bool { return false }))
	assert.GreaterOrEqual(t, time.Since(begin), 10*time.Millisecond)
}
