package zcopy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/wire"
)

const threshold = 100

func pipelined(t *testing.T) Source {
	s := newSource()
	require.NoError(t, commit(t, &s, hinted, changes(wire.ModePipelined, 1), idle))
	return s
}

// TestSourceRejects is what a peer may not do, as the last deed.
func TestSourceRejects(t *testing.T) {
	pipe := []deed{hinted, changes(wire.ModePipelined, 1)}
	for _, v := range []struct {
		name  string
		deeds []deed
		error string // of the last; "": none
	}{
		{"RdmaRdCompl", []deed{srcGoes(500, 7), gotRdCompl(436, 7)}, ""},
		{"RdmaRdCompl in parts", []deed{srcGoes(500, 7), gotRdCompl(400, 0), gotRdCompl(36, 0)}, ""},
		{"RdmaRdCompl for nothing", []deed{gotRdCompl(1, 0)}, "§9.2: RdmaRdCompl without a SrcAvail"},
		{"RdmaRdCompl for more than is left", []deed{srcGoes(500, 7), gotRdCompl(437, 7)}, "§9.2: RdmaRdCompl for 437 bytes of a SrcAvail of which 436 were left"},
		{"RdmaRdCompl for more in parts", []deed{srcGoes(500, 7), gotRdCompl(400, 0), gotRdCompl(37, 0)}, "§9.2: RdmaRdCompl for 37 bytes of a SrcAvail of which 36 were left"},
		{"RdmaRdCompl for two at once", append(pipe, srcGoes(2000, 7), srcGoes(2000, 8), gotRdCompl(2000, 0)), "§9.2: RdmaRdCompl for 2000 bytes of a SrcAvail of which 1000 were left"},
		{"RdmaRdCompl invalidates a foreign STag", []deed{srcGoes(500, 7), gotRdCompl(436, 8)}, "§9.2: RdmaRdCompl invalidates STag 0x8, the SrcAvail's is 0x7"},
		{"RdmaRdCompl invalidates the STag of the next one", append(pipe, srcGoes(2000, 7), srcGoes(2000, 8), gotRdCompl(1000, 8)), "§9.2: RdmaRdCompl invalidates STag 0x8, the SrcAvail's is 0x7"},
		{"RdmaRdCompl invalidates too early", []deed{srcGoes(500, 7), gotRdCompl(400, 7)}, "§9.2: RdmaRdCompl for 400 of 436 bytes invalidates STag 0x7"},
		{"RdmaRdCompl before all that SendSm asked for", append(pipe, srcGoes(2000, 7), srcGoes(2000, 8), gotSendSm(1), dataGoes(1, 999), gotRdCompl(1000, 8)), "§9.2: RdmaRdCompl before the data that SendSm requested"},
		{"RdmaRdCompl after all that SendSm asked for", append(pipe, srcGoes(2000, 7), srcGoes(2000, 8), gotSendSm(1), dataGoes(1, 1000), gotRdCompl(1000, 8)), ""},
		{"RdmaRdCompl that is faster than the end of the sending", append(pipe, srcGoes(2000, 7), srcGoes(2000, 8), gotSendSm(1), sending(1, 1000), gotRdCompl(1000, 8)), ""},

		{"SendSm", []deed{srcGoes(500, 7), gotSendSm(1)}, ""},
		{"SendSm for nothing", []deed{gotSendSm(1)}, "§9.5.2: SendSm without a SrcAvail"},
		{"SendSm twice", []deed{srcGoes(500, 7), gotSendSm(1), gotSendSm(1)}, "§9.5.2: SendSm without a SrcAvail"},
		{"SendSm after RdmaRdCompl", []deed{srcGoes(500, 7), gotRdCompl(436, 7), gotSendSm(1)}, "§9.5.2: SendSm without a SrcAvail"},

		{"SinkAvail", append(pipe, gotSinkAvail(101, 0, 1)), ""},
		{"SinkAvail in Combined mode", []deed{gotSinkAvail(101, 0, 1)}, "§12: SinkAvail in mode 1"},
		{"SinkAvail of a private buffer", append(pipe, gotSinkAvail(100, 0, 1)), "§9.5.1: SinkAvail of 100 bytes, private buffers have 100"},
		{"SinkAvail that counts more than was sent", append(pipe, dataGoes(3, 3), gotSinkAvail(101, 4, 1)), "§9.5.1: SinkAvail with NonDiscards 4, at most 3 possible"},
		{"SinkAvail that counts what is going", append(pipe, dataGoes(3, 3), sending(1, 1), gotSinkAvail(101, 4, 1)), ""},
		{"SinkAvails over MaxAdverts", append(pipe, gotSinkAvail(101, 0, 1), gotSinkAvail(101, 0, 1), gotSinkAvail(101, 0, 1)), "§6.2.1: more than 2 advertisements"},
		{"SinkAvails within, with those that are stale", append(pipe, gotSinkAvail(101, 0, 1), gotSinkAvail(101, 0, 1), dataGoes(2, 2), gotSinkAvail(101, 0, 1), gotSinkAvail(101, 0, 1)), ""},
		{"SinkAvail after the change to Combined", append(pipe, hinted, srcGoes(500, 7), gotSendSm(1), dataGoes(1, 500), srcGoes(500, 7), gotSendSm(1), dataGoes(1, 500),
			changes(wire.ModeCombined, 9), gotSinkAvail(101, 0, 9)), "§12: SinkAvail in mode 1"},
		{"SinkAvail that has crossed the change to Combined", append(pipe, hinted, srcGoes(500, 7), gotSendSm(1), dataGoes(1, 500), srcGoes(500, 7), gotSendSm(1), dataGoes(1, 500),
			changes(wire.ModeCombined, 9), gotSinkAvail(101, 2, 8)), ""},

		{"SinkAvailCancel for nothing", append(pipe, gotCancel, idle), ""},
		{"SinkAvailCancel in Combined mode", []deed{gotCancel, idle}, ""},

		{"ModeChange in Combined mode", []deed{gotMode(wire.ModeCombined)}, "§12: invalid mode change of the sink from 1 to 1"},
		{"ModeChange to Buffered", []deed{gotMode(wire.ModeBuffered)}, "§12: invalid mode change of the sink from 1 to 0"},
		{"ModeChange to Pipelined", []deed{gotMode(wire.ModePipelined)}, "§12: invalid mode change of the sink from 1 to 2"},
		{"ModeChange in Pipelined mode", append(pipe, gotMode(wire.ModeCombined)), "§12: invalid mode change of the sink from 2 to 1"},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := newSource()
			err := commit(t, &s, v.deeds...)
			if v.error != "" {
				assert.ErrorContains(t, err, v.error)
			} else {
				assert.NoError(t, err)
			}
		})
	}
}

// TestNextCombined: one SrcAvail at a time, with payload, and no payload after it.
func TestNextCombined(t *testing.T) {
	s := newSource()
	assert.False(t, s.Wants(threshold))
	assert.True(t, s.Wants(threshold+1))
	assert.NoError(t, commit(t, &s,
		next(t, 0, false, Plan{Step: Done}),
		next(t, threshold, false, Plan{Step: Copy, N: threshold}),
		next(t, 101, false, Plan{Step: Offer, N: 101, Ride: 64}),
		next(t, 5000, false, Plan{Step: Offer, N: 1000, Ride: 64}),
		srcGoes(5000, 7),
		next(t, 4936, false, Plan{Step: Wait}),
		gotRdCompl(936, 7),
		next(t, 4000, false, Plan{Step: Offer, N: 1000, Ride: 64}),
		srcGoes(1050, 8),
		next(t, 986, false, Plan{Step: Wait}),
		gotSendSm(1),
		next(t, 986, false, Plan{Step: Copy, N: 936}),
		dataGoes(2, 900),
		next(t, 86, false, Plan{Step: Copy, N: 36}),
		dataGoes(1, 36),
		next(t, 50, false, Plan{Step: Copy, N: 50}), // no more than the threshold
	))
	assert.Equal(t, 936, s.Moved())
	assert.Equal(t, 0, s.Moved())
	stag, ok := s.Ended()
	assert.True(t, ok)
	assert.EqualValues(t, 8, stag, "7 was invalidated by the peer")
	_, ok = s.Ended()
	assert.False(t, ok)
}

// TestOneByte cannot be advertised with payload, which has to be less.
func TestOneByte(t *testing.T) {
	s := NewSource(SourceConfig{PeerAdvert: 3, OurAdverts: 3})
	assert.NoError(t, commit(t, &s,
		next(t, 1, false, Plan{Step: Copy, N: 1}),
		next(t, 2, false, Plan{Step: Offer, N: 2, Ride: 1}),
		hinted, changes(wire.ModePipelined, 1),
		next(t, 1, false, Plan{Step: Offer, N: 1}),
	))
	s = NewSource(SourceConfig{Threshold: Never, PeerAdvert: 3, OurAdverts: 3})
	assert.False(t, s.Wants(1<<30))
	s.Hint()
	s.Hint()
	assert.NoError(t, idle(&s))
}

// TestNextPipelined: many SrcAvails, without payload, and what SendSm asks for
// ahead of all others.
func TestNextPipelined(t *testing.T) {
	s := pipelined(t)
	assert.NoError(t, commit(t, &s,
		srcGoes(5000, 1),
		next(t, 5000, false, Plan{Step: Offer, N: 1000, Skip: 1000}),
		srcGoes(5000, 2), srcGoes(5000, 3),
		next(t, 5000, false, Plan{Step: Wait}), // MaxAdverts
		gotSendSm(1),
		next(t, 5000, false, Plan{Step: Copy, N: 1000}),
		dataGoes(1, 400),
		gotSendSm(1),
		next(t, 4600, false, Plan{Step: Copy, N: 1600}),
		dataGoes(1, 1600),
		gotRdCompl(600, 0),
		next(t, 2400, false, Plan{Step: Offer, N: 1000, Skip: 400}),
		srcGoes(2400, 4),
		next(t, 2400, false, Plan{Step: Offer, N: 1000, Skip: 1400}),
		next(t, 1450, false, Plan{Step: Wait}), // the rest goes as Data, after them
		gotRdCompl(400, 3), gotRdCompl(1000, 4),
		next(t, 50, false, Plan{Step: Copy, N: 50}),
	))
	assert.Equal(t, 2000, s.Moved())
}

// TestFill is Write zcopy.
func TestFill(t *testing.T) {
	s := pipelined(t)
	avail := wire.Advert{Len: 500, STag: 9, VA: 2000}
	assert.NoError(t, commit(t, &s,
		gotSinkAvail(500, 0, 1),
		next(t, threshold, false, Plan{Step: Copy, N: threshold}),
		next(t, 300, false, Plan{Step: Fill, N: 300, Advert: avail}),
		next(t, 5000, false, Plan{Step: Fill, N: 500, Advert: avail}),
		fills(5000, 500),
		next(t, 4500, false, Plan{Step: Wait}), // the RdmaWrCompl goes first
		stops(t, 4500, Wait),
	))
	m, invalidate, ok := s.Due()
	assert.True(t, ok)
	assert.Equal(t, wire.MIDRdmaWrCompl, m.MID)
	assert.EqualValues(t, 500, m.Size)
	assert.EqualValues(t, 9, invalidate)
	s.Took(&m)
	assert.NoError(t, commit(t, &s,
		next(t, 4500, false, Plan{Step: Offer, N: 1000}),
		gotSinkAvail(5000, 0, 1),
		next(t, 4500, false, Plan{Step: Fill, N: 1000, Advert: wire.Advert{Len: 5000, STag: 9, VA: 2000}}),
		gotCancel, goes(wire.MIDSinkCancelAck, 5),
		next(t, 4500, false, Plan{Step: Offer, N: 1000}),
		gotSinkAvail(500, 0, 1), fills(4500, 500),
		gotCancel, // in process: RdmaWrCompl is the answer
		goes(wire.MIDRdmaWrCompl, 6), idle,
	))
}

// TestStale is §9.5.1.
func TestStale(t *testing.T) {
	fresh := Plan{Step: Fill, N: 200, Advert: wire.Advert{Len: 200, STag: 9, VA: 2000}}
	at := func(nonDiscards uint32) Plan {
		p := fresh
		p.Advert.NonDiscards = nonDiscards
		return p
	}
	none := Plan{Step: Offer, N: 1000}
	for _, v := range []struct {
		name      string
		deeds     []deed
		plan      Plan
		potential uint32
	}{
		{"fresh", []deed{gotSinkAvail(200, 0, 1)}, fresh, 0},
		{"fresh after payload", []deed{dataGoes(2, 2), gotSinkAvail(200, 2, 1)}, at(2), 2},
		{"payload has crossed it", []deed{dataGoes(1, 1), gotSinkAvail(200, 0, 1)}, none, 0},
		{"payload has gone since", []deed{gotSinkAvail(200, 0, 1), dataGoes(1, 1)}, none, 0},
		{"a second one is fresh", []deed{dataGoes(1, 1), gotSinkAvail(200, 0, 1), gotSinkAvail(200, 0, 1)}, fresh, 0},
		{"the draft's example", []deed{dataGoes(2, 2), gotSinkAvail(300, 0, 1), gotSinkAvail(300, 0, 1), gotSinkAvail(200, 0, 1)}, fresh, 0},
		{"two at once", []deed{gotSinkAvail(300, 0, 1), gotSinkAvail(200, 0, 1), dataGoes(1, 1)}, fresh, 0},
		{"payload was going, and went", []deed{sending(2, 2), gotSinkAvail(200, 0, 1), sent(2, 2)}, none, 1},
		{"payload was going, and did not go", []deed{sending(2, 2), gotSinkAvail(200, 0, 1), sent(0, 0)}, fresh, 0},
		{"payload was going, and one went", []deed{sending(2, 2), gotSinkAvail(200, 0, 1), sent(1, 1)}, none, 0},
		{"payload was going that it counts", []deed{sending(2, 2), gotSinkAvail(200, 2, 1), sent(2, 2)}, at(2), 2},
		{"payload was going, and a second one came", []deed{sending(1, 1), gotSinkAvail(300, 0, 1), gotSinkAvail(200, 0, 1), sent(1, 1)}, fresh, 0},
		{"cancelled while payload was going, and went", []deed{gotSinkAvail(200, 0, 1), sending(1, 1), gotCancel, gotCancel, sent(1, 1), idle}, none, 0},
		{"cancelled while payload was going, and did not go", []deed{gotSinkAvail(200, 0, 1), sending(1, 1), gotCancel, sent(0, 0), goes(wire.MIDSinkCancelAck, 2), idle}, none, 0},
		{"used up, cancelled and advertised again", []deed{gotSinkAvail(300, 0, 1), sending(1, 1), gotCancel, gotSinkAvail(200, 0, 1), sent(1, 1), idle}, fresh, 0},
		{"cancelled after payload", []deed{gotSinkAvail(200, 0, 1), dataGoes(1, 1), gotCancel, idle}, none, 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := pipelined(t)
			require.NoError(t, commit(t, &s, v.deeds...))
			assert.Equal(t, v.plan, s.Next(5000, false))
			assert.Equal(t, v.potential, s.potential)
		})
	}
}

// TestCrossing: a SinkAvail that is not stale wins over SrcAvails (§11.3).
func TestCrossing(t *testing.T) {
	s := pipelined(t)
	assert.NoError(t, commit(t, &s, dataGoes(1, 1), srcGoes(5000, 1), srcGoes(5000, 2), gotSinkAvail(200, 0, 1)))
	assert.Equal(t, 2, s.Outstanding(), "it was stale")
	assert.NoError(t, commit(t, &s, withdraws, gotSinkAvail(200, 0, 1)))
	assert.Equal(t, 0, s.Outstanding())
	for _, want := range []uint32{1, 2} {
		stag, ok := s.Ended()
		assert.True(t, ok)
		assert.Equal(t, want, stag)
	}
	assert.NoError(t, commit(t, &s, idle, fills(5000, 200), goes(wire.MIDRdmaWrCompl, 3)))
	assert.Equal(t, Plan{Step: Copy, N: 4800}, s.Next(4800, false), "it was withdrawn")
	s.Begin()
	assert.Equal(t, Plan{Step: Offer, N: 1000}, s.Next(4800, false), "what is left is advertised again")
}

// TestCancel is §9.5.4: how a SrcAvailCancel ends.
func TestCancel(t *testing.T) {
	const seq = 20
	for _, v := range []struct {
		name  string
		deeds []deed
		done  bool
		rest  Plan // of 3000 bytes
	}{
		{"not sent", []deed{withdraws}, false, Plan{Step: Wait}},
		{"not answered", []deed{withdraws, goes(wire.MIDSrcAvailCancel, seq)}, false, Plan{Step: Wait}},
		{"twice", []deed{withdraws, goes(wire.MIDSrcAvailCancel, seq), withdraws, idle}, false, Plan{Step: Wait}},
		{"all fetched before it went", []deed{withdraws, gotRdCompl(1000, 0), gotRdCompl(1000, 0), idle}, true, Plan{Step: Copy, N: 3000}},
		{"all fetched", []deed{withdraws, goes(wire.MIDSrcAvailCancel, seq), gotRdCompl(1000, 0), gotRdCompl(1000, 0)}, true, Plan{Step: Copy, N: 3000}},
		{"not all fetched", []deed{withdraws, goes(wire.MIDSrcAvailCancel, seq), gotRdCompl(1000, 0), gotRdCompl(999, 0)}, false, Plan{Step: Wait}},
		{"answered", []deed{withdraws, goes(wire.MIDSrcAvailCancel, seq), gotSendSm(seq)}, true, Plan{Step: Copy, N: 3000}},
		{"answered late", []deed{withdraws, goes(wire.MIDSrcAvailCancel, seq), gotSendSm(seq + 5)}, true, Plan{Step: Copy, N: 3000}},
		{"fetched in part and answered", []deed{withdraws, goes(wire.MIDSrcAvailCancel, seq), gotRdCompl(1000, 0), gotRdCompl(1, 0), gotSendSm(seq)}, true, Plan{Step: Copy, N: 3000}},
		{"a SendSm that has crossed it", []deed{withdraws, goes(wire.MIDSrcAvailCancel, seq), gotSendSm(seq - 1)}, false, Plan{Step: Copy, N: 1000}},
		{"one that has crossed it, and the answer", []deed{withdraws, goes(wire.MIDSrcAvailCancel, seq), gotSendSm(seq - 1), gotSendSm(seq)}, true, Plan{Step: Copy, N: 1000}},
		{"two that have crossed it", []deed{withdraws, goes(wire.MIDSrcAvailCancel, seq), gotSendSm(seq - 1), gotSendSm(seq - 1)}, true, Plan{Step: Copy, N: 2000}},
		{"overridden", []deed{withdraws, goes(wire.MIDSrcAvailCancel, seq), gotSinkAvail(200, 0, seq-1)}, true,
			Plan{Step: Fill, N: 200, Advert: wire.Advert{Len: 200, STag: 9, VA: 2000}}},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := pipelined(t)
			require.NoError(t, commit(t, &s, srcGoes(2000, 1), srcGoes(2000, 2)))
			require.NoError(t, commit(t, &s, v.deeds...))
			assert.Equal(t, v.done, s.cancel == cancelNone && s.Outstanding() == 0)
			assert.Equal(t, v.rest, s.Next(3000, false))
		})
	}
}

// TestUnoffered: a SrcAvail that did not go needs no cancel.
func TestUnoffered(t *testing.T) {
	s := newSource()
	p := s.Next(500, false)
	s.Sending(1, p.Ride, true)
	s.Offered(p, 7)
	s.Withdraw()
	s.Sent(0, 0)
	s.Unoffer(7)
	assert.NoError(t, commit(t, &s, idle, stops(t, 500, Done)))
	assert.EqualValues(t, 0, s.Counts().Adverts)
	assert.EqualValues(t, 0, s.potential)
}

// TestStop is a Write that is to end.
func TestStop(t *testing.T) {
	s := newSource()
	assert.NoError(t, commit(t, &s,
		stops(t, 500, Done), idle,
		srcGoes(500, 1),
		stops(t, 436, Wait), stops(t, 436, Wait),
		goes(wire.MIDSrcAvailCancel, 5), idle,
		stops(t, 436, Wait),
		gotRdCompl(400, 0),
		stops(t, 36, Wait),
		gotSendSm(5),
		stops(t, 36, Done), idle,
	))
	// What SendSm has asked for does not come: the peer is told so, and until then
	// nothing is advertised.
	s.Begin()
	assert.NoError(t, commit(t, &s, srcGoes(500, 2), gotSendSm(6), dataGoes(1, 100), stops(t, 336, Done)))
	assert.False(t, s.Wants(500))
	s.Begin()
	assert.NoError(t, commit(t, &s, next(t, 500, false, Plan{Step: Wait}), goes(wire.MIDSrcAvailCancel, 9)))
	assert.True(t, s.Wants(500))
	assert.NoError(t, idle(&s), "nothing is left to answer")
}

// TestAskedThatDidNotGo is asked for still.
func TestAskedThatDidNotGo(t *testing.T) {
	s := newSource()
	assert.NoError(t, commit(t, &s,
		srcGoes(1000, 1), gotSendSm(1), sending(3, 900), sent(1, 300),
		next(t, 636, false, Plan{Step: Copy, N: 636}),
	))
}

// TestSourceModes is the policy, and when a ModeChange goes.
func TestSourceModes(t *testing.T) {
	fail := func(stag uint32) []deed {
		return []deed{srcGoes(500, stag), gotSendSm(1), dataGoes(1, 500)}
	}
	s := newSource()
	s.Hint()
	assert.NoError(t, idle(&s), "one hint is none")
	assert.NoError(t, commit(t, &s, srcGoes(500, 1), gotRdCompl(436, 0)))
	s.Hint()
	assert.NoError(t, idle(&s), "not in succession")
	s.Hint()
	assert.NoError(t, commit(t, &s, srcGoes(500, 2), changes(wire.ModePipelined, 5), idle), "with a SrcAvail outstanding (§12.3)")
	assert.NoError(t, commit(t, &s, gotRdCompl(436, 0)))

	assert.NoError(t, commit(t, &s, fail(3)...))
	assert.NoError(t, commit(t, &s, srcGoes(500, 4), gotSendSm(1), idle), "not before all Data has gone")
	assert.NoError(t, commit(t, &s, dataGoes(1, 500), gotSinkAvail(300, 4, 1), changes(wire.ModeCombined, 9)))
	assert.Equal(t, Plan{Step: Offer, N: 500, Ride: 64}, s.Next(500, false), "the SinkAvail is dropped")

	assert.NoError(t, commit(t, &s, fail(5)...))
	assert.NoError(t, commit(t, &s, fail(6)...))
	s.Acked(8)
	assert.NoError(t, idle(&s), "the last change is not acknowledged")
	s.Acked(9)
	assert.NoError(t, commit(t, &s, changes(wire.ModeBuffered, 20), idle))
	assert.False(t, s.Wants(1<<20))
	s.Hint()
	s.Hint()
	assert.NoError(t, commit(t, &s, next(t, 500, false, Plan{Step: Copy, N: 500}), idle))
	assert.NoError(t, s.ModeChange(wire.ModeCombined))
	assert.Equal(t, wire.ModeCombined, s.Mode())
	assert.True(t, s.Wants(500))
	assert.EqualValues(t, 4, s.Counts().ModeChanges)
}

// TestChangeWaitsForRdmaWrCompl is §12.4.
func TestChangeWaitsForRdmaWrCompl(t *testing.T) {
	s := pipelined(t)
	for stag := range uint32(2) {
		require.NoError(t, commit(t, &s, srcGoes(500, stag+1), gotSendSm(1), dataGoes(1, 500)))
	}
	require.NoError(t, commit(t, &s, gotSinkAvail(200, 2, 1)))
	p := s.Next(500, false)
	require.Equal(t, Fill, p.Step)
	s.Filling(p)
	require.NoError(t, idle(&s), "RDMA Writes are under way")
	s.Filled(p.N)
	require.NoError(t, commit(t, &s, goes(wire.MIDRdmaWrCompl, 5), changes(wire.ModeCombined, 6), idle))
}

// TestCountsAfterChange: SinkAvails that have crossed the change to Combined mode
// were dropped by the sink, unless payload from before had used them up (ours).
func TestCountsAfterChange(t *testing.T) {
	change := []deed{srcGoes(500, 1), gotSendSm(1), dataGoes(1, 500), srcGoes(500, 1), gotSendSm(1), dataGoes(1, 500), changes(wire.ModeCombined, 9)}
	for _, v := range []struct {
		name      string
		deeds     []deed
		potential uint32
	}{
		{"none", []deed{idle}, 2},
		{"open at the change", []deed{gotSinkAvail(200, 2, 8)}, 2},
		{"used up before", []deed{gotSinkAvail(200, 1, 8)}, 1},
		{"both used up before", []deed{gotSinkAvail(200, 0, 8), gotSinkAvail(200, 0, 8)}, 0},
		{"one of two used up before", []deed{gotSinkAvail(200, 1, 8), gotSinkAvail(200, 1, 8)}, 1},
		{"payload after the change does not matter", []deed{dataGoes(5, 5), gotSinkAvail(200, 2, 8)}, 7},
		{"payload after it that is going neither", []deed{sending(5, 5), gotSinkAvail(200, 1, 8), sent(3, 3)}, 4},
		{"a cancel is not answered", []deed{gotSinkAvail(200, 2, 8), gotCancel, idle}, 2},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := pipelined(t)
			require.NoError(t, commit(t, &s, change...))
			require.NoError(t, commit(t, &s, v.deeds...))
			assert.Equal(t, v.potential, s.potential)
		})
	}
}

// TestFillThatIsNotWanted: RdmaWrCompl tells how much was written until the peer's
// cancel had come, and nothing else answers that (§9.5.5).
func TestFillThatIsNotWanted(t *testing.T) {
	s := pipelined(t)
	require.NoError(t, commit(t, &s, gotSinkAvail(200, 0, 1)))
	p := s.Next(500, false)
	require.Equal(t, Fill, p.Step)
	s.Filling(p)
	assert.False(t, s.Unwanted())
	s.SinkAvailCancel()
	assert.True(t, s.Unwanted())
	assert.Equal(t, p, s.Next(500, false), "some of it has to be written")
	s.Filled(30)
	assert.False(t, s.Pending())
	assert.Equal(t, Plan{Step: Wait}, s.Next(470, false))
	m, _, ok := s.Due()
	assert.True(t, ok)
	assert.Equal(t, wire.MIDRdmaWrCompl, m.MID)
	assert.EqualValues(t, 30, m.Size)
	assert.EqualValues(t, 30, s.Counts().Bytes)
	s.Took(&m)
	assert.False(t, s.Pending())
	require.NoError(t, commit(t, &s, gotSinkAvail(200, 0, 2)))
	s.Filling(s.Next(470, false))
	assert.False(t, s.Unwanted(), "the next one is")
}

// TestSinkCancelAckFollowsRdmaWrCompl: the sink releases its memory at SinkCancelAck, so the RDMA
// Writes into one of its SinkAvails are over by then (§9.5.5).
func TestSinkCancelAckFollowsRdmaWrCompl(t *testing.T) {
	s := pipelined(t)
	require.NoError(t, commit(t, &s, gotSinkAvail(200, 0, 1), gotSinkAvail(200, 0, 2)))
	s.Filling(s.Next(500, false))
	s.SinkAvailCancel()
	assert.False(t, s.Pending(), "before the RDMA Write is posted")
	_, _, ok := s.Due()
	assert.False(t, ok)
	s.Filled(30)
	assert.False(t, s.Pending(), "before the RdmaWrCompl is due")
	assert.Equal(t, Plan{Step: Wait}, s.Next(470, false), "no more is written")
	for _, mid := range []wire.MID{wire.MIDRdmaWrCompl, wire.MIDSinkCancelAck} {
		assert.True(t, s.Pending())
		m, _, ok := s.Due()
		assert.True(t, ok)
		assert.Equal(t, mid, m.MID)
		s.Took(&m)
	}
	assert.False(t, s.Pending())
}

// TestFillInParts: each part begins where the last one ended, and a call that must end
// writes no further part.
func TestFillInParts(t *testing.T) {
	s := pipelined(t)
	require.NoError(t, commit(t, &s, gotSinkAvail(200, 0, 1)))
	p := s.Next(500, false)
	s.Filling(p)
	s.Filled(50)
	part := s.Next(450, false)
	assert.Equal(t, Fill, part.Step)
	assert.Equal(t, 150, part.N)
	assert.Equal(t, p.Advert.VA+50, part.Advert.VA)
	s.Filling(part)
	s.Filled(100)
	assert.False(t, s.Pending())
	assert.Equal(t, Plan{Step: Wait}, s.Next(350, true))
	m, _, ok := s.Due()
	assert.True(t, ok)
	assert.EqualValues(t, 150, m.Size)
}

// TestSourceIsBounded: whatever a peer advertises.
func TestSourceIsBounded(t *testing.T) {
	s := pipelined(t)
	for i := range 1000 {
		require.NoError(t, commit(t, &s, gotSinkAvail(200, 0, 1), dataGoes(1, 1)), i)
	}
	assert.Less(t, len(s.sinks), 3)
	require.NoError(t, commit(t, &s, gotSinkAvail(200, 0, 1), sending(1, 1)))
	for range 1000 {
		s.SinkAvailCancel()
	}
	assert.Equal(t, 1, len(s.later))
}

func TestAllocsNone(t *testing.T) {
	s, k := pipelined(t), newSink()
	require.NoError(t, k.ModeChange(wire.ModePipelined))
	k.held = make([]held, 0, 3)
	once := func() {
		p := s.Next(500, false)
		s.Offered(p, 7)
		err := k.SrcAvail(wire.Advert{Len: 500, STag: 7}, 0)
		n, _, _, _ := k.Fetch(500)
		k.Fetched(n)
		m, _, _ := k.Due()
		k.Took(&m)
		if err == nil {
			err = s.RdCompl(n, 0, false)
		}
		s.Moved()
		for _, ok := s.Ended(); ok; _, ok = s.Ended() {
		}
		k.Offer(9, 2000, 500)
		m, _, _ = k.Due()
		k.Took(&m)
		if err == nil {
			err = s.SinkAvail(m.Advert, 1, buffer)
		}
		p = s.Next(500, false)
		s.Filling(p)
		s.Filled(p.N)
		m, _, _ = s.Due()
		s.Took(&m)
		if err == nil {
			err = k.WrCompl(int(m.Size), 9)
		}
		k.Outcome()
		if err != nil {
			t.Fatal(err)
		}
	}
	once()
	if n := testing.AllocsPerRun(100, once); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
