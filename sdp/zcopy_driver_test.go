package sdp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNothingCarriesNoSinkAvail: a Write whose last bytes are with the device
// looks in again when that has room, and has nothing then for a SinkAvail to ride
// on. What is no payload must not count as payload.
func TestNothingCarriesNoSinkAvail(t *testing.T) {
	c, s, _, _ := counted(t, 1)
	newTalk(t, c, s).pipelined()
	s.mu.Lock()
	require.True(t, s.zsink.MayOffer(1<<20, s.sink.Size()))
	s.zsink.Offer(1, 0, 1<<20)
	s.mu.Unlock()
	before := s.Stats()
	o := newOutgoing()
	defer o.free()
	n, err := s.post(o, nil)
	require.NoError(t, err)
	assert.Zero(t, n)
	after := s.Stats()
	assert.Equal(t, before.BcopySent, after.BcopySent)
	assert.Equal(t, before.ControlSent+1, after.ControlSent, "the SinkAvail has gone alone")
}
