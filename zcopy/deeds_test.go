package zcopy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/wire"
)

// deed is something that the peer sends, or that we do.
type deed func(s *Source) error

// does makes a deed of what returns nothing.
func does(f func(s *Source)) deed {
	return func(s *Source) error { f(s); return nil }
}

func newSource() Source {
	return NewSource(SourceConfig{Threshold: threshold, PeerAdvert: 4, OurAdverts: 2, MaxOffer: 1000})
}

// commit performs deeds and returns the error of the last one; the others must
// have none.
func commit(t *testing.T, s *Source, deeds ...deed) error {
	t.Helper()
	for i, d := range deeds[:len(deeds)-1] {
		require.NoError(t, d(s), "deed %d", i)
	}
	return deeds[len(deeds)-1](s)
}

// srcGoes has a SrcAvail for a Write of rest bytes go, which must be what is next.
func srcGoes(rest int, stag uint32) deed {
	return does(func(s *Source) {
		p := s.Next(rest, false)
		if p.Step != Offer {
			panic("no Offer")
		}
		if p.Ride > 0 {
			s.Sending(1, p.Ride, true)
		}
		s.Offered(p, stag)
		if p.Ride > 0 {
			s.Sent(1, p.Ride)
		}
	})
}

// dataGoes has messages with n bytes go.
func dataGoes(messages, n int) deed {
	return does(func(s *Source) { s.Sending(messages, n, false); s.Sent(messages, n) })
}

func sending(messages, n int) deed {
	return does(func(s *Source) { s.Sending(messages, n, false) })
}

func sent(messages, n int) deed { return does(func(s *Source) { s.Sent(messages, n) }) }

func gotRdCompl(n int, stag uint32) deed {
	return func(s *Source) error { return s.RdCompl(n, stag, false) }
}

func gotSendSm(ack uint32) deed {
	return func(s *Source) error { return s.SendSm(ack) }
}

func gotSinkAvail(size int, nonDiscards, ack uint32) deed {
	return func(s *Source) error {
		return s.SinkAvail(wire.Advert{Len: uint32(size), STag: 9, VA: 2000, NonDiscards: nonDiscards}, ack, buffer)
	}
}

func gotMode(m wire.Mode) deed {
	return func(s *Source) error { return s.ModeChange(m) }
}

// goes has a message of this kind go as message mseq, which must be due.
func goes(mid wire.MID, mseq uint32) deed {
	return does(func(s *Source) {
		m, _, ok := s.Due()
		if !ok || m.MID != mid {
			panic("due is " + m.MID.String())
		}
		m.MSeq = mseq
		s.Took(&m)
	})
}

// changes has the ModeChange to a mode go.
func changes(to wire.Mode, mseq uint32) deed {
	return does(func(s *Source) {
		m, _, ok := s.Due()
		if !ok || m.MID != wire.MIDModeChange || m.Mode != to || m.ModeOfSend {
			panic("due is " + m.MID.String())
		}
		m.MSeq = mseq
		s.Took(&m)
	})
}

// fills has the whole of a Fill go.
func fills(rest, n int) deed {
	return does(func(s *Source) {
		p := s.Next(rest, false)
		if p.Step != Fill || p.N != n {
			panic("no Fill")
		}
		s.Filling(p)
		s.Filled(p.N)
	})
}

// next looks at what a Write of rest bytes does.
func next(t *testing.T, rest int, stop bool, want Plan) deed {
	return does(func(s *Source) {
		t.Helper()
		assert.Equal(t, want, s.Next(rest, stop))
	})
}

// stops is a Write of rest bytes that is to end.
func stops(t *testing.T, rest int, want Step) deed {
	return does(func(s *Source) {
		t.Helper()
		assert.Equal(t, want, s.Next(rest, true).Step)
	})
}

// idle must find nothing due.
func idle(s *Source) error {
	if m, _, ok := s.Due(); ok {
		panic(m.MID.String() + " is due")
	}
	return nil
}

var (
	withdraws = does((*Source).Withdraw)
	gotCancel = does((*Source).SinkAvailCancel)
	hinted    = does(func(s *Source) { s.Hint(); s.Hint() })
)
