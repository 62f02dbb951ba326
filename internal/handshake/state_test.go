package handshake

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake/handshaketest"
)

// TestTransitions walks every event in every state. Those that are not listed are refused.
func TestTransitions(t *testing.T) {
	permitted := map[State]map[event]State{
		Accepted: {eventAsk: Accepted, eventPlain: Ended, eventRun: Securing},
		Securing: {eventSecured: Waiting, eventGiveWay: Leaving, eventEnd: Ended},
		Waiting:  {eventKey: Reading, eventGiveWay: Yielding, eventEnd: Ended},
		Yielding: {eventKey: Reading, eventGiveWay: Yielding, eventEnd: Ended},
		Reading:  {eventRequest: Agreeing, eventGiveWay: Leaving, eventEnd: Ended},
		Agreeing: {eventReply: Deciding, eventGiveWay: Leaving, eventEnd: Ended},
		Deciding: {eventGiveWay: Leaving, eventEnd: Ended},
		Leaving:  {eventSecured: Leaving, eventKey: Leaving, eventRequest: Leaving, eventReply: Leaving, eventGiveWay: Leaving, eventEnd: Ended},
		Ended:    {eventGiveWay: Ended},
	}
	for s := Accepted; s < states; s++ {
		for e := event(0); e < eventCount; e++ {
			want, ok := permitted[s][e]
			if !ok {
				assert.Panics(t, func() { s.after(e) }, "%v while %v", e, s)
				continue
			}
			assert.Equal(t, want, s.after(e), "%v while %v", e, s)
		}
	}
}

// TestStartedHandshakesEnd: a handshake may end, and may be asked to give way, at any time after it was started. The
// listener that has asked sees that its slot is about to be free, and asks no other one.
func TestStartedHandshakesEnd(t *testing.T) {
	for s := Securing; s < Ended; s++ {
		assert.Equal(t, Ended, s.after(eventEnd), "from %v", s)
		assert.True(t, s.after(eventGiveWay).Ending(), "from %v", s)
		assert.Equal(t, Ended, s.after(eventGiveWay).after(eventEnd), "from %v", s)
	}
	assert.True(t, Ended.Ending())
	assert.False(t, Accepted.Ending())
}

// TestIncomingIsCalledInOrder: Plain, and then Run once if that has returned nil. GiveWay is for handshakes that were
// started, and does nothing to one that has ended meanwhile.
func TestIncomingIsCalledInOrder(t *testing.T) {
	accepted := func(cfg Config) *Incoming {
		server, _ := handshaketest.TCPPair(t)
		return NewServer(cfg).Accepted(server)
	}
	asking, silent := testConfig(), testConfig()
	asking.SDPOnly, asking.HandshakeTimeout = true, time.Millisecond
	silent.MayAsk = nil

	h := accepted(silent)
	require.NotNil(t, h.Plain())
	assert.Panics(t, func() { h.Plain() })
	assert.Panics(t, func() { h.Run(t.Context()) })

	h = accepted(asking)
	assert.Panics(t, h.GiveWay)
	assert.Equal(t, Accepted, h.Progress().State)
	require.Nil(t, h.Plain())
	_, err := h.Run(t.Context())
	require.ErrorContains(t, err, "timed out")
	assert.Equal(t, Ended, h.Progress().State)
	assert.NotPanics(t, h.GiveWay)
	assert.Panics(t, func() { h.Plain() })
	assert.Panics(t, func() { h.Run(t.Context()) })
}
