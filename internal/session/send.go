package session

import (
	"github.com/gosdp/gosdp/credits"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
	"github.com/gosdp/gosdp/zcopy"
)

// MaxBatch is how many messages a Batch has room for.
const MaxBatch = 16

// Batch is messages that are about to be posted together, in their order. A Session has at
// most one that is open: from Control, Data or Offer to Sent. The peer's answers may come in
// between.
type Batch struct {
	WRs []rdma.SendWR // to post

	kind    batchKind
	mid     wire.MID // of the first message
	bytes   int      // of payload
	stag    uint32   // of an Offer
	array   [MaxBatch]rdma.SendWR
	headers [MaxBatch][wire.MaxHeaderLen]byte
}

type batchKind uint8

const (
	batchControl  batchKind = iota // one message of the protocol's own
	batchData                      // Data messages, or none
	batchCarrying                  // a SinkAvail with payload
	batchOffer                     // a SrcAvail
)

// MID returns what the first message is.
func (b *Batch) MID() wire.MID { return b.mid }

// Carries reports that the Batch is a SinkAvail with payload. What the peer says next means
// one thing if it went and another if it did not, so nothing may be received before Sent.
func (b *Batch) Carries() bool { return b.kind == batchCarrying }

// Bytes returns how many bytes of payload there are.
func (b *Batch) Bytes() int { return b.bytes }

// Reset empties the Batch, and keeps no reference to what was in it.
func (b *Batch) Reset() {
	clear(b.WRs)
	b.WRs = b.array[:0]
	b.bytes = 0
}

// add stamps a message as the next of the Batch.
func (s *Session) add(b *Batch, m *wire.Message) {
	i := len(b.WRs)
	if i == 0 {
		s.ackHeld()
		b.mid = m.MID
	}
	m.MSeq, m.MSeqAck, m.Bufs = s.Account.Next(uint32(i))
	b.WRs = append(b.WRs, rdma.SendWR{
		Header:    m.AppendHeader(b.headers[i][:0]),
		Payload:   m.Payload,
		Solicited: solicited(m),
	})
	b.bytes += len(m.Payload)
}

// solicited says which messages wake the peer's program (§14.2).
func solicited(m *wire.Message) bool {
	switch m.MID {
	case wire.MIDAbortConn, wire.MIDSendSm, wire.MIDSrcAvailCancel, wire.MIDSinkAvailCancel,
		wire.MIDSinkCancelAck, wire.MIDRdmaWrCompl, wire.MIDRdmaRdCompl:
		return true
	}
	return m.MID == wire.MIDData && m.Flags&(wire.FlagOOBPresent|wire.FlagOOBPending) != 0
}

// ackHeld reports that a SrcAvailCancel is not acknowledged yet (§9.5.4), and ends that when
// it is time.
func (s *Session) ackHeld() bool {
	_, held := s.ZSink.Held()
	if !held {
		s.Account.Release()
	}
	return held
}

// Due reports that a message of the protocol's own should go.
func (s *Session) Due() bool {
	_, ack := s.Sink.Ack()
	_, request := s.Source.Request()
	return s.update || s.fin == finDue || s.abort || ack || request || s.ZSource.Pending() || s.ZSink.Pending() || s.creditDue()
}

// creditDue reports that the peer should be told of more buffers at once: it needs them
// (§10.5), or so many are free that it will before long. Everything less is told in the next
// message.
func (s *Session) creditDue() bool {
	return s.Account.MustUpdate() || s.Account.Gain() >= s.Target/2
}

// Control makes the Batch the message of the protocol's own that goes next, and reports
// whether there is one: one is due, and credit allows it. failed: the device sends nothing
// any more, but may still be given an AbortConn.
func (s *Session) Control(b *Batch, failed bool) bool {
	b.Reset()
	m, invalidate, ok := s.nextControl()
	if !ok || failed && m.MID != wire.MIDAbortConn {
		return false
	}
	b.kind = batchControl
	s.add(b, &m)
	b.WRs[0].Invalidate = invalidate
	s.controlTaken(&m)
	return true
}

func (s *Session) nextControl() (m wire.Message, invalidate rdma.STag, ok bool) {
	bare := s.Account.May(credits.Bare)
	size, ack := s.Sink.Ack()
	want, request := s.Source.Request()
	held := s.ackHeld()
	switch {
	case bare && s.abort:
		m.MID = wire.MIDAbortConn
	case bare && (s.ZSource.Pending() || s.ZSink.Pending()):
		m, invalidate = s.nextAdvert()
	case bare && ack:
		m.MID, m.Size = wire.MIDChRcvBufAck, uint32(size)
	case bare && request && !held:
		// What crosses a ChRcvBuf is told by MSeqAck, which says too little while it is
		// held back.
		m.MID, m.Size = wire.MIDChRcvBuf, uint32(want)
	case bare && s.fin == finDue:
		m.MID = wire.MIDDisConn
	case bare && s.update, s.creditDue() && s.Account.May(credits.Update):
		m.MID = wire.MIDData
	default:
		return m, 0, false
	}
	return m, invalidate, true
}

// nextAdvert returns the message about advertisements that goes next, and the peer's region
// to invalidate with it. One must be due.
func (s *Session) nextAdvert() (m wire.Message, invalidate rdma.STag) {
	m, stag, ok := s.ZSource.Due()
	if !ok {
		m, stag, _ = s.ZSink.Due()
	} else if m.MID == wire.MIDRdmaWrCompl && s.ZSink.WantsPipelined() {
		m.Flags = wire.FlagReqPipe
	}
	if !s.invalidates {
		stag = 0
	}
	return m, rdma.STag(stag)
}

// controlTaken accounts for a message that is about to go: its answer may come before Sent.
func (s *Session) controlTaken(m *wire.Message) {
	switch m.MID {
	case wire.MIDChRcvBufAck:
		s.Sink.Acked()
		s.ZSink.Resized(int(m.Size))
	case wire.MIDChRcvBuf:
		s.Source.Requested(m.MSeq)
	case wire.MIDDisConn:
		s.fin = finGoing
	case wire.MIDData:
		s.update = false
	case wire.MIDRdmaWrCompl, wire.MIDSrcAvailCancel, wire.MIDSinkCancelAck:
		s.ZSource.Took(m)
	case wire.MIDRdmaRdCompl, wire.MIDSendSm, wire.MIDSinkAvailCancel, wire.MIDSinkAvail:
		s.ZSink.Took(m)
	case wire.MIDModeChange:
		if m.ModeOfSend { // it is the mode in which the peer sends
			s.ZSink.Took(m)
		} else {
			s.ZSource.Took(m)
		}
	}
}

// Preceded reports that a message of Control's has to go before payload: it says what is to
// become of what has gone so far.
func (s *Session) Preceded() bool { return s.ZSource.Pending() }

// MayControl reports that credit allows a message of Control's.
func (s *Session) MayControl() bool { return s.Account.May(credits.Bare) }

// Room returns how many messages with payload may go.
func (s *Session) Room() int {
	if s.Preceded() {
		return 0
	}
	return s.Account.Room()
}

// Data fills the Batch with the first bytes of p, in at most room messages of at most size
// bytes each, after their BSDH: less payload than they are given credit for. One message may
// carry an advertisement that a Read is waiting to send (the Transaction mechanism, §9.4), if
// size has room for its header and a byte.
func (s *Session) Data(b *Batch, p []byte, room, size int) {
	b.Reset()
	s.Source.Wrote(len(p))
	advert, due := s.ZSink.Carry()
	if n := min(size-Extension, len(p)); due && room > 0 && n > 0 {
		b.kind = batchCarrying
		s.add(b, &wire.Message{Header: wire.Header{MID: wire.MIDSinkAvail}, Advert: advert, Payload: p[:n]})
	} else {
		b.kind = batchData
		for len(b.WRs) < room && b.bytes < len(p) {
			k := min(size, len(p)-b.bytes)
			s.add(b, &wire.Message{Header: wire.Header{MID: wire.MIDData}, Payload: p[b.bytes:][:k]})
		}
	}
	s.ZSource.Sending(len(b.WRs), b.bytes, false)
}

// Extension is how many bytes an advertisement takes up in a message that carries it.
const Extension = wire.MaxHeaderLen - wire.HeaderLen

// MayOffer reports that credit allows the SrcAvail of the plan.
func (s *Session) MayOffer(plan *zcopy.Plan) bool {
	if plan.Ride > 0 {
		return s.Account.May(credits.Payload)
	}
	return s.Account.May(credits.Bare)
}

// Offer makes the Batch the SrcAvail of the plan, for part, which is exposed as stag at va.
func (s *Session) Offer(b *Batch, part []byte, plan zcopy.Plan, stag uint32, va uint64) {
	b.Reset()
	b.kind, b.stag = batchOffer, stag
	plan.Ride = min(plan.Ride, s.Source.Payload()-(wire.SrcAvailLen-wire.HeaderLen))
	s.add(b, &wire.Message{
		Header:  wire.Header{MID: wire.MIDSrcAvail},
		Advert:  wire.Advert{Len: uint32(plan.N), STag: stag, VA: va},
		Payload: part[:plan.Ride],
	})
	s.ZSource.Offered(plan, stag)
	s.ZSource.Sending(min(plan.Ride, 1), plan.Ride, true)
}

// Sent closes the Batch: its first n messages have gone, and no more will. It returns how
// many bytes of payload that were, and whether messages are due because of it.
func (s *Session) Sent(b *Batch, n int) (bytes int, due bool) {
	s.Account.Sent(n)
	for i := range b.WRs[:n] {
		bytes += len(b.WRs[i].Payload)
	}
	switch b.kind {
	case batchControl:
		if n == 1 && b.mid == wire.MIDDisConn {
			s.fin = finSent
		}
		return 0, false
	case batchOffer:
		if n == 0 {
			s.ZSource.Unoffer(b.stag)
		}
		s.ZSource.Sent(min(bytes, 1), bytes)
	default:
		if n > 0 && b.kind == batchCarrying {
			s.ZSink.Carried()
		}
		s.Source.Carried(bytes)
		s.ZSource.Sent(n, bytes)
	}
	_, request := s.Source.Request()
	return bytes, request || s.ZSource.Pending() || s.ZSink.Pending()
}
