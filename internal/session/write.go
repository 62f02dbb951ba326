package session

import (
	"github.com/gosdp/gosdp/credits"
	"github.com/gosdp/gosdp/wire"
	"github.com/gosdp/gosdp/zcopy"
)

// WriteState is the state of a Write as its driver knows it.
type WriteState uint8

const (
	WriteGoesOn WriteState = iota
	WriteStops             // the call must end
	WriteBroken            // the device sends nothing more
)

// WriteStep is what a Write does next.
type WriteStep uint8

const (
	WriteWait       WriteStep = iota // wait for the peer
	WriteStall                       // wait for the peer to grant credit
	WriteControl                     // first send what Control returns; credit allows it
	WriteInvalidate                  // invalidate STag: the memory is not advertised any more
	WriteCopy                        // send N bytes as Data
	WriteOffer                       // register N bytes after the first Skip, and call Offer
	WriteFill                        // call Fill, post RDMA Writes to STag at VA, N bytes at most, and call Filled
	WriteDone                        // return: no more of the Write is under way or exposed
	WriteLost                        // return: the connection ended while the Write was under way
)

// WritePlan is a WriteStep with its arguments.
type WritePlan struct {
	Step  WriteStep
	Moved int // bytes that the peer has fetched since the last plan: the first of the rest
	N     int // of the bytes after Moved
	Skip  int
	STag  uint32
	VA    uint64

	rest   int
	direct zcopy.Plan
}

// BeginWrite starts a Write of n bytes. It reports whether the Write must repeat PlanWrite.
// Otherwise all of it is sent as Data.
func (s *Session) BeginWrite(n int) (planned bool) {
	s.planned = s.zsource.Wants(n)
	if s.planned {
		s.zsource.Begin()
	}
	return s.planned
}

// PlanWrite returns the next step of a Write of which rest bytes have not been sent, filled
// or reported as Moved.
func (s *Session) PlanWrite(rest int, state WriteState) (p WritePlan) {
	if s.zsource != nil {
		p.Moved = s.zsource.Moved()
		rest -= p.Moved
		if stag, ok := s.zsource.Ended(); ok {
			p.Step, p.STag = WriteInvalidate, stag
			return p
		}
	}
	p.rest = rest
	switch {
	case state == WriteBroken:
		p.Step = s.brokenWrite(rest)
		return p
	case s.planned:
		p.direct = s.zsource.Next(rest, state == WriteStops)
	case rest > 0 && state == WriteGoesOn:
		p.direct = zcopy.Plan{Step: zcopy.Copy, N: rest}
	default:
		p.direct.Step = zcopy.Done
	}
	p.N, p.Skip = p.direct.N, p.direct.Skip
	switch {
	case s.Preceded() && s.account.May(credits.Bare):
		p.Step = WriteControl
	case s.Preceded():
		p.Step = WriteWait
	case p.direct.Step == zcopy.Done:
		p.Step = WriteDone
	case p.direct.Step == zcopy.Copy:
		p.Step = WriteCopy
	case p.direct.Step == zcopy.Offer && !s.mayOffer(p.direct.Ride):
		p.Step = WriteStall
	case p.direct.Step == zcopy.Offer:
		p.Step = WriteOffer
	case p.direct.Step == zcopy.Fill:
		p.Step, p.STag, p.VA = WriteFill, p.direct.Advert.STag, p.direct.Advert.VA
	}
	return p
}

// brokenWrite plans a Write when nothing can be sent any more. What the peer said about the
// advertised memory before that may still arrive.
func (s *Session) brokenWrite(rest int) WriteStep {
	switch {
	case s.zsource == nil:
		return WriteLost
	case rest == 0 && s.zsource.Next(0, false).Step == zcopy.Done:
		return WriteDone // the peer had all of it before the end
	case s.zsource.Outstanding() > 0:
		return WriteWait
	}
	return WriteLost
}

// mayOffer reports whether credit allows a SrcAvail that carries ride bytes.
func (s *Session) mayOffer(ride int) bool {
	if ride > 0 {
		return s.account.May(credits.Payload)
	}
	return s.account.May(credits.Bare)
}

// Offer puts the SrcAvail of a plan into the Batch, if the plan still holds, and reports whether
// it does. If not, it changes nothing. The SrcAvail advertises part, which is exposed as stag at
// va.
func (s *Session) Offer(b *Batch, part []byte, p WritePlan, stag uint32, va uint64) bool {
	if s.Preceded() || !s.mayOffer(p.direct.Ride) || s.zsource.Next(p.rest, false) != p.direct {
		return false
	}
	b.Reset()
	b.kind, b.stag = batchOffer, stag
	p.direct.Ride = min(p.direct.Ride, s.source.Payload()-(wire.SrcAvailLen-wire.HeaderLen))
	s.add(b, &wire.Message{
		Header:  wire.Header{MID: wire.MIDSrcAvail},
		Advert:  wire.Advert{Len: uint32(p.N), STag: stag, VA: va},
		Payload: part[:p.direct.Ride],
	})
	s.zsource.Offered(p.direct, stag)
	s.zsource.Sending(min(p.direct.Ride, 1), p.direct.Ride, true)
	return true
}

// CannotOffer notes that the rest of the Write is sent as Data, because its memory cannot be
// registered.
func (s *Session) CannotOffer() { s.zsource.Plain() }

// Fill notes that RDMA Writes of a plan are about to be posted.
func (s *Session) Fill(p WritePlan) { s.zsource.Filling(p.direct) }

// Filled notes that RDMA Writes of the next n bytes of the plan have been posted.
func (s *Session) Filled(n int) { s.zsource.Filled(n) }

// Offering reports whether the peer may still fetch anything that the Write has advertised.
func (s *Session) Offering() bool { return s.zsource.Outstanding() > 0 }

// Overdue withdraws what the Write has advertised, unless the peer has made progress: it does
// nothing if the next plan reports bytes as Moved.
func (s *Session) Overdue() { s.zsource.Overdue() }

// AbandonWrite ends the Write's advertisements, because the connection has ended.
func (s *Session) AbandonWrite() { s.zsource.Abandon() }

// Stalled reports whether no message with payload may be sent until the peer grants credit.
func (s *Session) Stalled() bool { return s.account.Room() == 0 }

// Payload returns how many bytes of the stream fit into one Data message.
func (s *Session) Payload() int { return s.source.Payload() }

// PeerBufferSize returns the size of the peer's private buffers, in bytes.
func (s *Session) PeerBufferSize() int { return s.source.Size() }
