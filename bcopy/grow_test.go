package bcopy

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestGrowsAfterMuch: a long Write alone is no reason to ask for larger buffers; it is
// one when much has gone, and again so after the buffers have shrunk.
func TestGrowsAfterMuch(t *testing.T) {
	s := NewSource(base, true)
	due := func() bool {
		s.Wrote(1 << 20)
		_, due := s.Request()
		return due
	}
	assert.False(t, due(), "nothing has gone")
	s.Carried(growAfter - 1)
	assert.False(t, due(), "a byte less than it takes has gone")
	s.Carried(1)
	assert.True(t, due())
	s.Requested(1)
	assert.NoError(t, s.Acked(MaxBuffer))
	s.Idle()
	request(t, &s, base)
	assert.NoError(t, s.Acked(base))
	assert.False(t, due(), "nothing has gone since they shrank")
}
