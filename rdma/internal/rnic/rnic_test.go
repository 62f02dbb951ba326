package rnic

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestReads: Reads come out in the order in which they were added, as many as the limit allows.
func TestReads(t *testing.T) {
	var r Reads[int]
	one, two, three := 1, 2, 3
	assert.Nil(t, r.Oldest())
	assert.True(t, r.Add(&one, 2))
	assert.True(t, r.Add(&two, 2))
	assert.False(t, r.Add(&three, 2))
	assert.Same(t, &two, r.Find(func(n *int) bool { return *n == 2 }))
	assert.Nil(t, r.Find(func(n *int) bool { return *n == 3 }))
	assert.Same(t, &one, r.Oldest())
	r.Pop()
	assert.Same(t, &two, r.Oldest())
	assert.True(t, r.Add(&three, 2))
	r.Pop()
	r.Pop()
	assert.Nil(t, r.Oldest())
}

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
