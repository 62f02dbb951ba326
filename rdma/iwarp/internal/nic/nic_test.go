package nic

import (
	"testing"

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
