package nic

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestBuffers: a message needs a posted buffer, and the end of its loan posts it again.
func TestBuffers(t *testing.T) {
	var b Buffers
	assert.False(t, b.Take())
	b = Buffers{}
	b.Provide(2, 100)
	assert.Equal(t, 100, b.Size())
	assert.True(t, b.Take())
	assert.True(t, b.Take())
	assert.False(t, b.Take())
	b = Buffers{}
	b.Provide(1, 100)
	assert.True(t, b.Take())
	c := b.Alone(100)
	c.Release()
	assert.True(t, b.Take())
	b.Provide(3, 50) // one is used up, so two more are posted
	assert.True(t, b.Take())
	assert.True(t, b.Take())
	assert.False(t, b.Take())
	b.Provide(math.MaxInt, math.MaxInt)
	assert.Equal(t, math.MaxInt32, b.Size())
}

// TestChunks: a chunk counts as held until the last reference is gone, and only then another
// queue pair can have it.
func TestChunks(t *testing.T) {
	pool := NewPool(1000)
	var b Buffers
	c := b.Get(pool)
	assert.True(t, c.Sole())
	c.Lend()
	assert.False(t, c.Sole())
	assert.EqualValues(t, 1000, b.Held())
	c.Drop()
	assert.EqualValues(t, 1000, b.Held())
	c.Release()
	assert.Zero(t, b.Held())
	assert.Nil(t, c.owner)

	b.Provide(1, 1000)
	assert.False(t, b.Full())
	var all []*Chunk
	for !b.Full() {
		all = append(all, b.Get(pool))
	}
	assert.InDelta(t, 2*BigChunk+1000, len(all)*1000, 2000)
	for _, c := range all {
		c.Drop()
	}
	assert.Zero(t, b.Held())
}
