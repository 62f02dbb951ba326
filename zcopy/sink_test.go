package zcopy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/wire"
)

// act is something that the peer sends, or that we do.
type act func(s *Sink) error

// do makes an act of what returns nothing.
func do(f func(s *Sink)) act {
	return func(s *Sink) error { f(s); return nil }
}

func srcAvail(size, payload int) act {
	return func(s *Sink) error {
		err := s.SrcAvail(wire.Advert{Len: uint32(size), STag: 7, VA: 1000}, payload)
		if err == nil && payload > 0 {
			s.Payload(payload, false)
		}
		return err
	}
}

func data(n int) act { return do(func(s *Sink) { s.Payload(n, true) }) }

func toMode(m wire.Mode) act {
	return func(s *Sink) error { return s.ModeChange(m) }
}

func srcCancel(seq uint32) act {
	return func(s *Sink) error { return s.SrcAvailCancel(seq) }
}

func wrCompl(n int, stag uint32) act {
	return func(s *Sink) error { return s.WrCompl(n, stag) }
}

func disConn(s *Sink) error   { return s.End() }
func cancelAck(s *Sink) error { return s.CancelAck() }

// fetch has an RDMA Read begin, and fetched has the oldest one complete.
func fetch(n int) act {
	return do(func(s *Sink) {
		if size, _, _, ok := s.Fetch(n); !ok || size != n {
			panic("cannot fetch")
		}
	})
}

func fetched(n int) act { return do(func(s *Sink) { s.Fetched(n) }) }

var (
	decline  = do(func(s *Sink) { s.Decline() })
	refuse   = do((*Sink).Refuse)
	withdraw = do(func(s *Sink) { s.Withdraw() })
)

// advertise offers a Read of n bytes, which must be allowed.
func advertise(n int) act {
	return do(func(s *Sink) {
		if !s.MayOffer(n, buffer) {
			panic("must not offer")
		}
		s.Offer(9, 2000, n)
	})
}

func resized(n int) act { return do(func(s *Sink) { s.Resized(n) }) }

const buffer = 100

// sends has a message of this kind go, which must be the next one due.
func sends(mid wire.MID) act {
	return do(func(s *Sink) {
		m, _, ok := s.Due()
		if !ok || m.MID != mid {
			panic("due is " + m.MID.String())
		}
		s.Took(&m)
	})
}

var (
	sendSm    = sends(wire.MIDSendSm)
	rdCompl   = sends(wire.MIDRdmaRdCompl)
	sinkAvail = sends(wire.MIDSinkAvail)
	sinkGone  = sends(wire.MIDSinkAvailCancel)

	toBuffered, toCombined, toPipelined = toMode(wire.ModeBuffered), toMode(wire.ModeCombined), toMode(wire.ModePipelined)
)

// nothingDue must be the last act.
func nothingDue(s *Sink) error {
	if m, _, ok := s.Due(); ok {
		panic(m.MID.String() + " is due")
	}
	return nil
}

func newSink() Sink { return NewSink(SinkConfig{OurAdverts: 3, PeerAdvert: 2}) }

// perform performs acts and returns the error of the last one; the others must
// have none.
func perform(t *testing.T, s *Sink, acts ...act) error {
	t.Helper()
	for i, a := range acts[:len(acts)-1] {
		require.NoError(t, a(s), "act %d", i)
	}
	return acts[len(acts)-1](s)
}

// TestSink is what a peer may and may not do (§9, §11, §12), with what is to be
// looked at as the last act.
func TestSink(t *testing.T) {
	for _, v := range []struct {
		name  string
		acts  []act
		error string // of the last; "": none
	}{
		{"Combined: one SrcAvail", []act{srcAvail(200, 10)}, ""},
		{"Combined: one at a time", []act{srcAvail(200, 10), decline, sendSm, data(190), srcAvail(2, 1)}, ""},
		{"Combined: Data in pieces", []act{srcAvail(200, 10), decline, sendSm, data(90), data(100), srcAvail(2, 1)}, ""},
		{"Combined: Data that goes on after", []act{srcAvail(200, 10), decline, sendSm, data(1000), srcAvail(2, 1)}, ""},
		{"Combined: fetched", []act{srcAvail(200, 10), fetch(190), fetched(190), rdCompl, srcAvail(2, 1)}, ""},
		{"Combined: largest", []act{srcAvail(1<<31, 1), decline, sendSm, data(1<<31 - 1), srcAvail(2, 1)}, ""},
		{"Combined: without payload", []act{srcAvail(200, 0)}, "§11.2: SrcAvail without payload in Combined mode"},
		{"Combined: a second one", []act{srcAvail(200, 10), srcAvail(200, 10)}, "§11.2: second SrcAvail in Combined mode"},
		{"Combined: a second one after SendSm", []act{srcAvail(200, 10), decline, sendSm, srcAvail(200, 10)}, "§11.2: second SrcAvail in Combined mode"},
		{"Combined: a second one before all Data", []act{srcAvail(200, 10), decline, sendSm, data(189), srcAvail(200, 10)}, "§11.2: second SrcAvail in Combined mode"},
		{"Combined: a second one before RdmaRdCompl", []act{srcAvail(200, 10), fetch(190), fetched(190), srcAvail(200, 10)}, "§11.2: second SrcAvail in Combined mode"},

		{"Buffered: Data", []act{toBuffered, data(100)}, ""},
		{"Buffered: SrcAvail", []act{toBuffered, srcAvail(200, 10)}, "§11.1: SrcAvail in Buffered mode"},
		{"Buffered: SrcAvail without payload", []act{toBuffered, srcAvail(200, 0)}, "§11.1: SrcAvail in Buffered mode"},

		{"Pipelined: many", []act{toPipelined, srcAvail(200, 0), srcAvail(200, 0), srcAvail(200, 0)}, ""},
		{"Pipelined: with payload", []act{toPipelined, srcAvail(200, 1)}, "§11.3: SrcAvail with payload in Pipelined mode"},
		{"Pipelined: too many", []act{toPipelined, srcAvail(200, 0), srcAvail(200, 0), srcAvail(200, 0), srcAvail(200, 0)}, "§6.2.1: more than 3 advertisements"},
		{"Pipelined: too many with the one before", []act{srcAvail(200, 1), toPipelined, srcAvail(200, 0), srcAvail(200, 0), srcAvail(200, 0)}, "§6.2.1: more than 3 advertisements"},
		{"Pipelined: one that has gone makes room", []act{toPipelined, srcAvail(200, 0), srcAvail(200, 0), srcAvail(200, 0), decline, sendSm, data(200), srcAvail(200, 0)}, ""},

		{"Combined to Buffered", []act{toBuffered}, ""},
		{"Combined to Pipelined", []act{toPipelined}, ""},
		{"Combined to Pipelined with a SrcAvail outstanding (§12.3)", []act{srcAvail(200, 10), toPipelined}, ""},
		{"Pipelined to Combined", []act{toPipelined, toCombined, srcAvail(200, 1)}, ""},
		{"Pipelined to Combined and back", []act{toPipelined, toCombined, toPipelined, srcAvail(200, 0)}, ""},
		{"Combined to Buffered after the SrcAvail", []act{srcAvail(200, 10), decline, sendSm, data(190), toBuffered}, ""},
		{"Combined to Buffered before it is done", []act{srcAvail(200, 10), toBuffered}, "§12.1: change to Buffered mode before the end of the SrcAvail"},
		{"Combined to Buffered before all Data", []act{srcAvail(200, 10), decline, sendSm, toBuffered}, "§12.1: change to Buffered mode before the end of the SrcAvail"},
		{"Combined to Combined", []act{toCombined}, "§12: invalid mode change of the source from 1 to 1"},
		{"Pipelined to Pipelined", []act{toPipelined, toPipelined}, "§12: invalid mode change of the source from 2 to 2"},
		{"Buffered to Buffered", []act{toBuffered, toBuffered}, "§12: invalid mode change of the source from 0 to 0"},
		{"Pipelined to Buffered", []act{toPipelined, toBuffered}, "§12: invalid mode change of the source from 2 to 0"},
		{"Buffered to Combined is the sink's", []act{toBuffered, toCombined}, "§12: invalid mode change of the source from 0 to 1"},
		{"Buffered to Pipelined", []act{toBuffered, toPipelined}, "§12: invalid mode change of the source from 0 to 2"},

		{"cancel for nothing", []act{srcCancel(5), nothingDue}, ""},
		{"cancel for what has gone", []act{srcAvail(200, 10), fetch(190), fetched(190), rdCompl, srcCancel(5), nothingDue}, ""},
		{"cancel", []act{srcAvail(200, 10), srcCancel(5), sendSm, srcAvail(200, 10)}, ""},
		{"cancel of many: one SendSm", []act{toPipelined, srcAvail(200, 0), srcAvail(200, 0), srcCancel(5), sendSm, nothingDue}, ""},
		{"cancel while SendSm is due: one", []act{srcAvail(200, 10), decline, srcCancel(5), sendSm, nothingDue}, ""},
		{"cancel: Data is asked for no more", []act{srcAvail(200, 10), decline, sendSm, srcCancel(5), srcAvail(200, 10)}, ""},
		{"cancel in process", []act{srcAvail(200, 10), fetch(90), srcCancel(5), nothingDue}, ""},
		{"cancel in process, partly fetched", []act{srcAvail(200, 10), fetch(90), srcCancel(5), fetched(90), rdCompl, sendSm, nothingDue}, ""},
		{"cancel in process, all fetched", []act{srcAvail(200, 10), fetch(190), srcCancel(5), fetched(190), rdCompl, nothingDue}, ""},
		{"SrcAvail after a cancel", []act{toPipelined, srcAvail(200, 0), srcCancel(5), srcAvail(200, 0)}, "§9.5.4: SrcAvail after an unanswered SrcAvailCancel"},
		{"cancel after a cancel", []act{srcAvail(200, 10), srcCancel(5), srcCancel(6)}, "§9.5.4: SrcAvailCancel after an unanswered SrcAvailCancel"},

		{"fetched before SendSm: RdmaRdCompl goes first", []act{srcAvail(200, 10), fetch(90), fetched(90), decline, rdCompl, sendSm, data(100), srcAvail(2, 1)}, ""},
		{"fetched to its end: nothing to decline", []act{srcAvail(200, 10), fetch(190), fetched(190), decline, rdCompl, nothingDue}, ""},
		{"fetched to its end: nothing to refuse", []act{srcAvail(200, 10), fetch(190), fetched(190), refuse, rdCompl, nothingDue}, ""},
		{"fetched to its end: the next one is declined", []act{toPipelined, srcAvail(200, 0), srcAvail(200, 0), fetch(200), fetched(200), decline, rdCompl, sendSm, nothingDue}, ""},
		{"nothing is declined while it is fetched", []act{srcAvail(200, 10), fetch(90), decline, nothingDue}, ""},
		{"nothing is refused while it is fetched", []act{srcAvail(200, 10), fetch(90), refuse, nothingDue}, ""},
		{"refused when it was fetched", []act{srcAvail(200, 10), fetch(90), refuse, fetched(90), rdCompl, sendSm, nothingDue}, ""},
		{"one SendSm at a time", []act{refuse, toPipelined, srcAvail(200, 0), srcAvail(200, 0), sendSm, nothingDue}, ""},
		{"the next SendSm after the Data", []act{refuse, toPipelined, srcAvail(200, 0), srcAvail(200, 0), sendSm, data(199), nothingDue}, ""},
		{"the next SendSm after the Data", []act{refuse, toPipelined, srcAvail(200, 0), srcAvail(200, 0), sendSm, data(100), data(100), sendSm}, ""},

		{"filled", []act{toPipelined, advertise(500), sinkAvail, wrCompl(500, 9)}, ""},
		{"filled in part", []act{toPipelined, advertise(500), sinkAvail, wrCompl(1, 0)}, ""},
		{"filled with more", []act{toPipelined, advertise(500), sinkAvail, wrCompl(501, 9)}, "§9.3: RdmaWrCompl for 501 bytes of a SinkAvail of 500"},
		{"filled, and a foreign STag invalidated", []act{toPipelined, advertise(500), sinkAvail, wrCompl(500, 7)}, "§9.3: RdmaWrCompl invalidates STag 0x7, the SinkAvail's is 0x9"},
		{"filled twice", []act{toPipelined, advertise(500), sinkAvail, wrCompl(500, 9), wrCompl(500, 9)}, "§9.3: RdmaWrCompl without a SinkAvail"},
		{"filled before it was advertised", []act{toPipelined, advertise(500), wrCompl(500, 9)}, "§9.3: RdmaWrCompl without a SinkAvail"},
		{"filled after payload", []act{toPipelined, advertise(500), sinkAvail, data(1), wrCompl(500, 9)}, "§9.3: RdmaWrCompl without a SinkAvail"},
		{"filled after Combined mode", []act{toPipelined, advertise(500), sinkAvail, toCombined, wrCompl(500, 9)}, "§9.3: RdmaWrCompl without a SinkAvail"},
		{"a SrcAvail that has crossed is forgotten", []act{toPipelined, advertise(500), sinkAvail, srcAvail(200, 0), nothingDue}, ""},
		{"a SrcAvail that has crossed, refused", []act{toPipelined, advertise(500), sinkAvail, refuse, srcAvail(200, 0), nothingDue}, ""},
		{"a SrcAvail before the SinkAvail", []act{toPipelined, advertise(500), srcAvail(200, 0), nothingDue}, ""},
		{"payload before the SinkAvail", []act{toPipelined, advertise(500), data(1), nothingDue}, ""},

		{"withdrawn before it went", []act{toPipelined, advertise(500), withdraw, nothingDue}, ""},
		{"withdrawn", []act{toPipelined, advertise(500), sinkAvail, withdraw, sinkGone, withdraw, nothingDue}, ""},
		{"withdrawn and answered", []act{toPipelined, advertise(500), sinkAvail, withdraw, sinkGone, cancelAck}, ""},
		{"withdrawn and answered twice", []act{toPipelined, advertise(500), sinkAvail, withdraw, sinkGone, cancelAck, cancelAck}, "§9.5.5: SinkCancelAck without a SinkAvailCancel"},
		{"answered before it was withdrawn", []act{toPipelined, advertise(500), sinkAvail, cancelAck}, "§9.5.5: SinkCancelAck without a SinkAvailCancel"},
		{"answered before the cancel went", []act{toPipelined, advertise(500), sinkAvail, withdraw, cancelAck}, "§9.5.5: SinkCancelAck without a SinkAvailCancel"},
		{"withdrawn too late: filled", []act{toPipelined, advertise(500), sinkAvail, withdraw, sinkGone, wrCompl(500, 9), nothingDue}, ""},
		{"withdrawn too late: payload", []act{toPipelined, advertise(500), sinkAvail, withdraw, data(1), nothingDue}, ""},
		{"answered after a part was written", []act{toPipelined, advertise(500), sinkAvail, withdraw, sinkGone, wrCompl(400, 9), cancelAck}, ""},
		{"answered twice after a part was written", []act{toPipelined, advertise(500), sinkAvail, withdraw, sinkGone, wrCompl(400, 9), cancelAck, cancelAck}, "§9.5.5: SinkCancelAck without a SinkAvailCancel"},
		{"answered after all was written", []act{toPipelined, advertise(500), sinkAvail, withdraw, sinkGone, wrCompl(500, 9), cancelAck}, "§9.5.5: SinkCancelAck without a SinkAvailCancel"},
		{"answered after a DisConn that followed a part", []act{toPipelined, advertise(500), sinkAvail, withdraw, sinkGone, wrCompl(400, 9), disConn, cancelAck}, ""},
		{"answered after payload", []act{toPipelined, advertise(500), sinkAvail, withdraw, sinkGone, data(1), cancelAck}, "§9.5.5: SinkCancelAck without a SinkAvailCancel"},

		{"DisConn", []act{disConn}, ""},
		{"DisConn ends a SinkAvail", []act{toPipelined, advertise(500), sinkAvail, disConn, wrCompl(1, 0)}, "§9.3: RdmaWrCompl without a SinkAvail"},
		{"DisConn crosses a cancel", []act{toPipelined, advertise(500), sinkAvail, withdraw, sinkGone, disConn, cancelAck}, ""},
		{"DisConn crosses a cancel, two answers", []act{toPipelined, advertise(500), sinkAvail, withdraw, sinkGone, disConn, cancelAck, cancelAck}, "§9.5.5: SinkCancelAck without a SinkAvailCancel"},
		{"DisConn before a SrcAvail is done", []act{srcAvail(200, 10), disConn}, "§8.2.1: DisConn before the end of advertised data"},
		{"DisConn before all Data", []act{srcAvail(200, 10), decline, sendSm, disConn}, "§8.2.1: DisConn before the end of advertised data"},
		{"SrcAvail after DisConn", []act{disConn, srcAvail(200, 10)}, "§8.2.1: SrcAvail after DisConn"},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := newSink()
			err := perform(t, &s, v.acts...)
			if v.error != "" {
				assert.ErrorContains(t, err, v.error)
			} else {
				assert.NoError(t, err)
			}
		})
	}
}

// TestSinkAvailAllowed is when a Read may be advertised.
func TestSinkAvailAllowed(t *testing.T) {
	for _, v := range []struct {
		name string
		acts []act
		n    int
		may  bool
	}{
		{"Combined", []act{data(1)}, 500, false},
		{"Pipelined", []act{toPipelined}, 500, true},
		{"not larger than a private buffer (§9.5.1)", []act{toPipelined}, buffer, false},
		{"one byte larger", []act{toPipelined}, buffer + 1, true},
		{"a SrcAvail is held (§11.3)", []act{toPipelined, srcAvail(200, 0)}, 500, false},
		{"a SrcAvail has only its RdmaRdCompl left", []act{toPipelined, srcAvail(200, 0), fetch(200), fetched(200)}, 500, false},
		{"a SrcAvail was fetched", []act{toPipelined, srcAvail(200, 0), fetch(200), fetched(200), rdCompl}, 500, true},
		{"Data is to come", []act{toPipelined, srcAvail(200, 0), decline, sendSm}, 500, false},
		{"Data has come", []act{toPipelined, srcAvail(200, 0), decline, sendSm, data(200)}, 500, true},
		{"one is due", []act{toPipelined, advertise(500)}, 500, false},
		{"one is open", []act{toPipelined, advertise(500), sinkAvail}, 500, false},
		{"one was withdrawn and not answered", []act{toPipelined, advertise(500), sinkAvail, withdraw, sinkGone}, 500, false},
		{"refused", []act{toPipelined, refuse}, 500, false},
		{"after DisConn", []act{toPipelined, disConn}, 500, false},
		{"back in Combined mode", []act{toPipelined, toCombined}, 500, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := newSink()
			require.NoError(t, perform(t, &s, v.acts...))
			assert.Equal(t, v.may, s.MayOffer(v.n, buffer))
		})
	}
}

// TestBars is which payload may not follow a SrcAvail (§11.2, §11.3).
func TestBars(t *testing.T) {
	for _, v := range []struct {
		name string
		acts []act
		n    int
		bars bool
	}{
		{"no SrcAvail", []act{data(1)}, 1, false},
		{"a SrcAvail is held", []act{srcAvail(200, 10)}, 1, true},
		{"no payload", []act{srcAvail(200, 10)}, 0, false},
		{"what SendSm has asked for", []act{toPipelined, srcAvail(200, 0), srcAvail(200, 0), decline, sendSm}, 200, false},
		{"more than that", []act{toPipelined, srcAvail(200, 0), srcAvail(200, 0), decline, sendSm}, 201, true},
		{"it may have crossed a SrcAvailCancel", []act{srcAvail(200, 10), srcCancel(5)}, 1, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := newSink()
			require.NoError(t, perform(t, &s, v.acts...))
			assert.Equal(t, v.bars, s.Bars(v.n))
		})
	}
	assert.False(t, (*Sink)(nil).Bars(1), "without zero copy")
}

// TestSinkAvailIsWorthIt: the least Read that is advertised has Worth bytes.
func TestSinkAvailIsWorthIt(t *testing.T) {
	s := NewSink(SinkConfig{OurAdverts: 3, PeerAdvert: 2, Worth: buffer + 100})
	require.NoError(t, perform(t, &s, toPipelined))
	assert.True(t, s.MayOffer(buffer+100, buffer))
	assert.False(t, s.MayOffer(buffer+99, buffer))
}

// TestOneAdvert: a peer that takes one advertisement gets SrcAvails.
func TestOneAdvert(t *testing.T) {
	for _, most := range []int{1, 2} {
		s := NewSink(SinkConfig{OurAdverts: 3, PeerAdvert: most})
		require.NoError(t, s.ModeChange(wire.ModePipelined))
		assert.Equal(t, most > 1, s.MayOffer(500, buffer))
	}
}

// TestOutcome is how a SinkAvail ends, and what of it is counted in NonDiscards:
// payload that has used up no advertisement.
func TestOutcome(t *testing.T) {
	for _, v := range []struct {
		name        string
		acts        []act // after one of 500 bytes was offered
		n           int
		over        bool
		nonDiscards uint32
	}{
		{"due", []act{nop}, 0, false, 1},
		{"open", []act{sinkAvail}, 0, false, 1},
		{"filled", []act{sinkAvail, wrCompl(400, 9)}, 400, true, 1},
		{"used up", []act{sinkAvail, data(1)}, 0, true, 1},
		{"used up, and more has come", []act{sinkAvail, data(1), data(1)}, 0, true, 2},
		{"payload before it went", []act{data(1)}, 0, true, 2},
		{"SrcAvail before it went", []act{srcAvail(200, 0)}, 0, true, 1},
		{"SrcAvail afterwards", []act{sinkAvail, srcAvail(200, 0)}, 0, false, 1},
		{"withdrawn before it went", []act{withdraw}, 0, true, 1},
		{"buffers grow before it went", []act{resized(499)}, 0, false, 1},
		{"buffers grow to its size before it went", []act{resized(500)}, 0, true, 1},
		{"buffers grow", []act{sinkAvail, resized(5000)}, 0, false, 1},
		{"withdrawn", []act{sinkAvail, withdraw, sinkGone}, 0, false, 1},
		{"withdrawn and answered", []act{sinkAvail, withdraw, sinkGone, cancelAck}, 0, true, 1},
		{"Combined mode", []act{sinkAvail, toCombined}, 0, true, 1},
		{"Combined mode before it went", []act{toCombined}, 0, true, 1},
		{"DisConn", []act{sinkAvail, disConn}, 0, true, 1},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := newSink()
			require.NoError(t, perform(t, &s, toPipelined, data(1), advertise(500)))
			require.NoError(t, perform(t, &s, v.acts...))
			n, over := s.Outcome()
			assert.Equal(t, v.n, n)
			assert.Equal(t, v.over, over)
			assert.Equal(t, v.nonDiscards, s.nonDiscards)
			if _, again := s.Outcome(); again {
				t.Error("it ends twice")
			}
		})
	}
}

func nop(*Sink) error { return nil }

// TestHeld is when a SrcAvailCancel must not be acknowledged (§9.5.4).
func TestHeld(t *testing.T) {
	s := newSink()
	held := func() bool {
		seq, ok := s.Held()
		if ok {
			assert.EqualValues(t, 5, seq)
		}
		return ok
	}
	require.NoError(t, perform(t, &s, srcAvail(200, 10), srcCancel(4)))
	assert.False(t, held(), "nothing was being fetched")
	require.NoError(t, perform(t, &s, sendSm, srcAvail(200, 10), fetch(50), fetch(40), srcCancel(5)))
	assert.True(t, held())
	if _, _, _, ok := s.Fetch(1); ok {
		t.Error("an RDMA Read after the cancel")
	}
	require.NoError(t, perform(t, &s, fetched(50)))
	assert.True(t, held())
	require.NoError(t, perform(t, &s, rdCompl))
	assert.True(t, held(), "one is still being fetched")
	require.NoError(t, perform(t, &s, fetched(40)))
	assert.True(t, held())
	require.NoError(t, perform(t, &s, rdCompl))
	assert.False(t, held())
	require.NoError(t, perform(t, &s, sendSm, nothingDue))
	assert.False(t, held())
}

// TestFetch fetches two SrcAvails in parts.
func TestFetch(t *testing.T) {
	s := newSink()
	require.NoError(t, s.ModeChange(wire.ModePipelined))
	require.NoError(t, s.SrcAvail(wire.Advert{Len: 100, STag: 7, VA: 1000}, 0))
	require.NoError(t, s.SrcAvail(wire.Advert{Len: 50, STag: 8, VA: 5000}, 0))
	expect := func(n, size int, stag uint32, va uint64) {
		t.Helper()
		gotSize, gotTag, gotVA, ok := s.Fetch(n)
		assert.True(t, ok)
		assert.Equal(t, size, gotSize)
		assert.Equal(t, stag, gotTag)
		assert.Equal(t, va, gotVA)
	}
	completes := func(size, invalidates uint32) {
		t.Helper()
		m, stag, ok := s.Due()
		require.True(t, ok)
		assert.Equal(t, wire.MIDRdmaRdCompl, m.MID)
		assert.Equal(t, size, m.Size)
		assert.Equal(t, invalidates, stag)
		s.Took(&m)
	}
	expect(30, 30, 7, 1000)
	s.Unfetch(30)
	expect(60, 60, 7, 1000)
	s.Fetched(60)
	completes(60, 0)
	expect(1000, 40, 7, 1060)
	expect(1000, 50, 8, 5000)
	if _, _, _, ok := s.Fetch(1); ok {
		t.Error("there is no more")
	}
	s.Fetched(40)
	s.Fetched(50)
	completes(40, 7)
	completes(50, 8)
	assert.False(t, s.Holding())
	require.NoError(t, nothingDue(&s))
	assert.EqualValues(t, 150, s.Counts().Bytes)
}

// TestRide fetches what did not ride along.
func TestRide(t *testing.T) {
	s := newSink()
	require.NoError(t, s.SrcAvail(wire.Advert{Len: 100, STag: 7, VA: 1000}, 64))
	s.Payload(64, false)
	size, stag, va, ok := s.Fetch(1000)
	assert.True(t, ok)
	assert.Equal(t, 36, size)
	assert.EqualValues(t, 7, stag)
	assert.EqualValues(t, 1064, va)
	assert.EqualValues(t, 1, s.nonDiscards)
}

// TestNoFetch is when nothing may be fetched though a SrcAvail is held.
func TestNoFetch(t *testing.T) {
	for name, acts := range map[string][]act{
		"SendSm is due":                 {decline},
		"Data of the one before is due": {decline, sendSm},
		"some of it is":                 {decline, sendSm, data(199)},
		"a cancel is":                   {fetch(1), srcCancel(5)},
		"refused":                       {refuse},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSink()
			require.NoError(t, perform(t, &s, toPipelined, srcAvail(200, 0), srcAvail(200, 0)))
			require.NoError(t, perform(t, &s, acts...))
			assert.True(t, s.Holding())
			_, _, _, ok := s.Fetch(1000)
			assert.False(t, ok)
		})
	}
}

// TestSuits: no RDMA Read for a Read that is much smaller than what there is.
func TestSuits(t *testing.T) {
	const worth = 256 << 10
	s := newSink()
	s.worth = worth
	assert.NoError(t, perform(t, &s, toPipelined, srcAvail(4<<20, 0), srcAvail(4000, 0)))
	assert.True(t, s.Suits(1<<20))
	assert.True(t, s.Suits(worth))
	assert.False(t, s.Suits(worth-1))
	assert.NoError(t, perform(t, &s, fetch(4<<20), fetched(4<<20)))
	assert.True(t, s.Suits(4000), "the next one is meant when the first has only its RdmaRdCompl left")
	assert.False(t, s.Suits(3999))
	s.Refuse()
	assert.False(t, s.Suits(1<<20))
}

// TestCarry is a SinkAvail that rides on payload.
func TestCarry(t *testing.T) {
	s := newSink()
	require.NoError(t, perform(t, &s, toPipelined, data(1), data(1)))
	_, ok := s.Carry()
	assert.False(t, ok, "none is due")
	require.NoError(t, perform(t, &s, advertise(500)))
	a, ok := s.Carry()
	assert.True(t, ok)
	assert.Equal(t, wire.Advert{Len: 500, STag: 9, VA: 2000, NonDiscards: 2}, a)
	a, ok = s.Carry()
	assert.True(t, ok, "the device had no room")
	s.Carried()
	require.NoError(t, nothingDue(&s))
	assert.EqualValues(t, 9, s.Advertised())
	require.NoError(t, s.WrCompl(500, a.STag))
	assert.EqualValues(t, 0, s.Advertised())
}

// TestComesBack: after Reads that could have done without a copy, twice as many
// each time. One that could not takes off one, or who reads a header in front of
// each message would never come back.
func TestComesBack(t *testing.T) {
	s := newSink()
	for _, reads := range []int{8, 16, 32} {
		require.NoError(t, s.ModeChange(wire.ModeBuffered))
		for range 10 {
			s.Reading(buffer, buffer)
		}
		for range reads - 1 {
			s.Reading(500, buffer)
		}
		for range 100 {
			s.Reading(buffer, buffer)
			s.Reading(500, buffer)
			require.NoError(t, nothingDue(&s))
		}
		s.Reading(500, buffer)
		m, _, ok := s.Due()
		require.True(t, ok)
		assert.Equal(t, wire.Message{Header: wire.Header{MID: wire.MIDModeChange}, Mode: wire.ModeCombined, ModeOfSend: true}, m)
		assert.Equal(t, wire.ModeBuffered, s.Mode())
		s.Took(&m)
		assert.Equal(t, wire.ModeCombined, s.Mode())
		require.NoError(t, nothingDue(&s))
	}
	require.NoError(t, s.ModeChange(wire.ModeBuffered))
	s.Refuse()
	for range 1000 {
		s.Reading(500, buffer)
	}
	require.NoError(t, nothingDue(&s))
}

// TestReqPipe: when SrcAvails in succession have found a Read waiting.
func TestReqPipe(t *testing.T) {
	s := newSink()
	for i, v := range []struct{ reading, wants bool }{{true, false}, {true, true}, {true, true}, {false, false}, {true, false}, {true, true}} {
		if v.reading {
			s.Reading(500, buffer)
		}
		require.NoError(t, perform(t, &s, srcAvail(200, 10), fetch(190), fetched(190)))
		m, _, _ := s.Due()
		assert.Equal(t, v.wants, m.Flags == wire.FlagReqPipe, "SrcAvail %d", i)
		s.Took(&m)
		s.Read()
	}
}

// TestSinkIsBounded: whatever a peer advertises.
func TestSinkIsBounded(t *testing.T) {
	s := newSink()
	require.NoError(t, perform(t, &s, toPipelined, advertise(500), sinkAvail))
	for range 1000 {
		require.NoError(t, s.SrcAvail(wire.Advert{Len: 1 << 31, STag: 1}, 0), "it has crossed ours")
	}
	assert.Empty(t, s.held)
	require.NoError(t, perform(t, &s, data(1)))
	for i := range 1000 {
		err := s.SrcAvail(wire.Advert{Len: 1 << 31, STag: 1}, 0)
		assert.Equal(t, i < 3, err == nil)
	}
	assert.Len(t, s.held, 3)
}

// TestAnnounced: advertised bytes are announced until they have arrived.
func TestAnnounced(t *testing.T) {
	for _, v := range []struct {
		name string
		acts []act
		want bool
	}{
		{"nothing", []act{nop}, false},
		{"advertised", []act{srcAvail(200, 10)}, true},
		{"fetched in part", []act{srcAvail(200, 10), fetch(100), fetched(100), rdCompl}, true},
		{"being fetched", []act{srcAvail(200, 10), fetch(190)}, true},
		{"fetched", []act{srcAvail(200, 10), fetch(190), fetched(190)}, false},
		{"asked for", []act{srcAvail(200, 10), decline, sendSm}, true},
		{"came as Data", []act{srcAvail(200, 10), decline, sendSm, data(190)}, false},
		{"cancelled", []act{srcAvail(200, 10), srcCancel(5), sendSm}, false},
	} {
		s := newSink()
		require.NoError(t, perform(t, &s, v.acts...))
		assert.Equal(t, v.want, s.Announced(), v.name)
	}
}

// TestCancelAnsweredWhenNothingCouldBeFetched: the SrcAvailCancel came while an
// RDMA Read was being posted that the device then refused.
func TestCancelAnsweredWhenNothingCouldBeFetched(t *testing.T) {
	s := NewSink(SinkConfig{OurAdverts: 2, PeerAdvert: 2, Worth: 100})
	require.NoError(t, s.SrcAvail(wire.Advert{Len: 1064, STag: 7}, 64))
	n, _, _, ok := s.Fetch(1000)
	require.True(t, ok)
	require.NoError(t, s.SrcAvailCancel(9))
	_, held := s.Held()
	assert.True(t, held)
	s.Unfetch(n)
	m, _, ok := s.Due()
	require.True(t, ok)
	assert.Equal(t, wire.MIDSendSm, m.MID)
	s.Took(&m)
	_, held = s.Held()
	assert.False(t, held)
	assert.False(t, s.Holding())
}
