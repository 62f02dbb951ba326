package timing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestRelations: each time is less than, or at most, the one on its right.
func TestRelations(t *testing.T) {
	for _, v := range []struct {
		less, more time.Duration
		why        string
	}{
		{MeetFirst, MeetMost, "the intervals grow"},
		{2 * MeetMost, Listen, "an acceptor that waits for a meeting finds a dialler that listens for the least time"},
		{Listen, MeetTime, "a dialler listens for less than a meeting may last"},
		{YoungStep, MeetMost + 1, "a meeting with a young connection is no slower than one of two ends that wait"},
		{YoungFirst, Reply, "a young connection looks while a Dial that may send a Request waits to meet it"},
		{YoungLast, Demand, "a young connection takes its last look while a Dial that demands SDP waits"},
		{YoungFirst, YoungLast, "a young connection looks again"},
		{MeetTime, Demand, "a Dial that demands SDP outlasts a meeting in vain"},
		{Refused, Demand, "a Dial whose peer was turned away fails early"},

		{2 * Visit, MeetTime, "visits end meetings"},
		{2 * Visit, Idle, "visits find idle connections"},
		{2 * Visit, Home, "the peer's part in bringing a connection home may take it a visit"},
		{Home, File, "a peer that is only busy must not cost File the connection"},

		{LastLook, Reply, "the last look is not what a Dial waits for"},
		{Reply + StepUp, Decision, "a client that was replied to and has stepped up in time is not too late to decide"},
		{Decision, Patience + 1, "a handshake does not give way while its client may decide"},
		{Decision, Handshake, "a client that decides late does so within the handshake"},
		{Reply, Handshake, "a server waits for longer than a client for its Reply"},
		{Handshake, Demand, "a Dial that demands SDP outlasts a server's handshake"},
		{Handshake + Closed, Watch, "the close of a server that speaks only SDP is observed"},
		{Reply, Silence, "a silent address costs less than it would to ask it each time"},
		{Silence, PlainTTL, "silence proves less than an answer"},

		{5 * Slice, Decision, "slices remain if the process was stopped in one of them"},
		{10 * SlotCheck, Silent, "a silent client's slot is taken soon after its time"},
		{Silent, Patience, "a client that has sent its Request keeps its slot for longer"},
		{Silent, Handshake, "a silent client gives way before its handshake is over"},
		{10 * Order, OrderPause, "waits in vain take little of Accept's time"},
		{AcceptGrace, CloseGrace, "handshakes are given what is left of CloseGrace"},
	} {
		assert.Less(t, v.less, v.more, v.why)
	}
}
