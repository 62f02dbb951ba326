package local

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gosdp/gosdp/internal/policy"
)

// TestMovesOfAPolicy: its users may share memory, and its containers meet in its directory.
func TestMovesOfAPolicy(t *testing.T) {
	p := MovesFor(&policy.Policy{UIDs: []int{33, 1000}})
	assert.True(t, p.Allow(33))
	assert.True(t, p.Allow(1000))
	assert.False(t, p.Allow(34))
	assert.Nil(t, MovesFor(new(policy.Policy)).Allow)
	assert.Equal(t, "/run/sdp", MovesFor(&policy.Policy{Dir: "/run/sdp"}).Dir)
}
