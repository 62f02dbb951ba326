package sdp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOneByteCarriesASinkAvail: a Write that is shorter than the advertisement takes it
// along, also over shm, which is asked for room for each message.
func TestOneByteCarriesASinkAvail(t *testing.T) {
	t.Setenv(devicesVariable, "shm")
	c, s := zcopyPair(t, 1)
	newTalk(t, c, s).pipelined()
	s.mu.Lock()
	require.True(t, s.session.Parts().ZSink.MayOffer(1<<20, s.session.BufferSize()))
	s.session.Parts().ZSink.Offer(1, 0, 1<<20)
	s.mu.Unlock()
	before := s.Stats()
	n, err := s.Write([]byte{42})
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	after := s.Stats()
	assert.Equal(t, Counts{1, 1}, Counts{after.BcopySent.Messages - before.BcopySent.Messages, after.BcopySent.Bytes - before.BcopySent.Bytes})
	assert.Equal(t, before.ControlSent, after.ControlSent, "it went with the byte")
	s.mu.Lock()
	assert.Equal(t, uint32(1), s.session.Parts().ZSink.Advertised())
	s.mu.Unlock()
	b := make([]byte, 2)
	n, err = c.Read(b)
	require.NoError(t, err)
	assert.Equal(t, []byte{42}, b[:n])
}
