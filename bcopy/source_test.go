package bcopy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/wire"
)

const base = 1024 // bytes in the peer's buffers at the start

// asked returns a Source that has sent a ChRcvBuf: to grow, or to shrink after
// it has grown.
func asked(t *testing.T, connector, grow bool) Source {
	t.Helper()
	s := NewSource(base, connector)
	s.Carried(growAfter)
	s.Wrote(1 << 20)
	request(t, &s, MaxBuffer)
	if grow {
		return s
	}
	require.NoError(t, s.Acked(MaxBuffer))
	s.Idle()
	request(t, &s, base)
	s.Carried(growAfter)
	return s
}

// request sends the ChRcvBuf that is due.
func request(t *testing.T, s *Source, want int) {
	t.Helper()
	size, due := s.Request()
	require.True(t, due)
	require.Equal(t, want, size)
	s.Requested(1)
	_, due = s.Request()
	require.False(t, due, "§10.6: only one may be outstanding")
}

// TestAcknowledgements is §10.6's text on what a ChRcvBufAck may say.
func TestAcknowledgements(t *testing.T) {
	for _, v := range []struct {
		name    string
		grow    bool
		answer  uint32
		payload int    // that a message carries then
		error   string // "": none
		barred  bool   // from asking for the same again
	}{
		{"grown as asked", true, MaxBuffer, MaxBuffer, "", false},
		{"grown further than asked", true, MaxBuffer + 1000, MaxBuffer, "", false},
		{"grown by some", true, 2048, 2048, "", false},
		{"not grown", true, base, base, "", true},
		{"shrunk instead of grown", true, base - 1, 0, "peer's buffers shrank", false},
		{"shrunk as asked", false, base, base, "", false},
		{"shrunk by some", false, 2048, 2048, "", false},
		{"not shrunk", false, MaxBuffer, MaxBuffer, "", true},
		{"shrunk further than asked", false, base - 1, 0, "peer's buffers shrank", false},
		{"grown instead of shrunk", false, MaxBuffer + 1, 0, "peer's buffers grew", false},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := asked(t, true, v.grow)
			err := s.Acked(v.answer)
			if v.error != "" {
				require.ErrorContains(t, err, "§10.6: "+v.error)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, v.payload-wire.HeaderLen, s.Payload())
			if v.grow {
				s.Wrote(1 << 20)
			} else {
				s.Idle()
			}
			_, due := s.Request()
			switch {
			case v.barred:
				assert.False(t, due, "§10.6: an Ack of the old size bars further requests in that direction")
			case v.grow && v.payload != MaxBuffer:
				assert.True(t, due)
			}
			assert.ErrorContains(t, s.Acked(base), "ChRcvBufAck without ChRcvBuf")
		})
	}
}

// TestSizeWhileAsking: one that shrinks binds us at once, one that grows with
// its answer.
func TestSizeWhileAsking(t *testing.T) {
	s := asked(t, true, true)
	assert.Equal(t, base-wire.HeaderLen, s.Payload())
	s = asked(t, true, false)
	assert.Equal(t, base-wire.HeaderLen, s.Payload())
}

// TestCrossing is §10.6.1, for requests in either direction.
func TestCrossing(t *testing.T) {
	for _, grow := range []bool{true, false} {
		accepting := asked(t, false, grow)
		assert.False(t, accepting.Crossed(0), "the accepting end disregards the request")
		_, due := accepting.Request()
		assert.False(t, due)
		assert.NoError(t, accepting.Acked(base), "and its own is answered")
		assert.True(t, accepting.Crossed(0), "a later one is answered")

		connecting := asked(t, true, grow)
		assert.True(t, connecting.Crossed(0), "the connecting end responds")
		assert.ErrorContains(t, connecting.Acked(base), "without ChRcvBuf", "its own is not answered")
		want, due := connecting.Request()
		assert.True(t, due, "and may be sent again")
		assert.Equal(t, map[bool]int{true: MaxBuffer, false: base}[grow], want)
		connecting.Requested(1)
		answer := uint32(base)
		if !grow { // the peer may keep its buffers, as if nothing had crossed
			answer = MaxBuffer
		}
		assert.NoError(t, connecting.Acked(answer))
		assert.Equal(t, int(answer)-wire.HeaderLen, connecting.Payload())
	}
	idle := NewSource(base, false)
	assert.True(t, idle.Crossed(0), "nothing of ours is outstanding")
}

// TestGrowth asks for larger buffers when Writes take many messages, and not
// again; and for those of the start when idle.
func TestGrowth(t *testing.T) {
	s := NewSource(base, true)
	s.Carried(growAfter - 1)
	s.Wrote(1 << 30)
	_, due := s.Request()
	assert.False(t, due, "the program may write this and exit")
	s.Carried(1)
	s.Wrote(growAt * s.Payload())
	_, due = s.Request()
	assert.False(t, due, "a Write of %d messages is well served", growAt)
	s.Idle()
	_, due = s.Request()
	assert.False(t, due, "nothing has grown")
	s.Wrote(growAt*s.Payload() + 1)
	s.Wrote(1 << 20)
	s.Idle()
	request(t, &s, MaxBuffer)
	s.Wrote(1 << 20)
	_, due = s.Request()
	assert.False(t, due)
	assert.False(t, s.Grown())
	require.NoError(t, s.Acked(MaxBuffer))
	assert.True(t, s.Grown())
	s.Wrote(1 << 30)
	_, due = s.Request()
	assert.False(t, due, "there is nothing larger")
	s.Idle()
	request(t, &s, base)
	assert.False(t, s.Grown(), "bound at once")
	require.NoError(t, s.Acked(base))
	s.Wrote(1 << 20)
	_, due = s.Request()
	assert.False(t, due, "it begins anew")
	s.Carried(growAfter)
	s.Wrote(1 << 20)
	request(t, &s, MaxBuffer)

	large := NewSource(MaxBuffer, true)
	large.Carried(growAfter)
	large.Wrote(1 << 30)
	_, due = large.Request()
	assert.False(t, due)
}
