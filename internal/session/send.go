package session

import (
	"github.com/gosdp/gosdp/credits"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// MaxBatch is the maximum number of messages in a Batch.
const MaxBatch = 16

// Batch is a sequence of messages to be posted together. It is open from Control, Data or
// Offer until Sent, and a Session has at most one open Batch. Messages from the peer may be
// received in between.
type Batch struct {
	WRs []rdma.SendWR // to post

	kind    batchKind
	mid     wire.MID // of the first message
	bytes   int      // of payload
	stag    uint32   // of a SrcAvail
	array   [MaxBatch]rdma.SendWR
	headers [MaxBatch][wire.MaxHeaderLen]byte
}

type batchKind uint8

const (
	batchControl  batchKind = iota // one control message
	batchData                      // Data messages, or none
	batchCarrying                  // a SinkAvail with payload
	batchOffer                     // a SrcAvail
)

// MID returns the type of the first message.
func (b *Batch) MID() wire.MID { return b.mid }

// Carries reports whether the Batch is a SinkAvail with payload. The meaning of the peer's
// next message depends on whether it was sent, so nothing may be received before Sent.
func (b *Batch) Carries() bool { return b.kind == batchCarrying }

// Bytes returns the number of bytes of payload.
func (b *Batch) Bytes() int { return b.bytes }

// Reset empties the Batch and drops all references to its messages.
func (b *Batch) Reset() {
	clear(b.WRs)
	b.WRs = b.array[:0]
	b.bytes = 0
}

// add appends a message to the Batch and fills in its sequence number and credit.
func (s *Session) add(b *Batch, m *wire.Message) {
	i := len(b.WRs)
	if i == 0 {
		s.ackHeld()
		b.mid = m.MID
	}
	m.MSeq, m.MSeqAck, m.Bufs = s.account.Next(uint32(i))
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

// ackHeld reports whether a SrcAvailCancel must not be acknowledged yet (§9.5.4). If not, it
// lets messages acknowledge it.
func (s *Session) ackHeld() bool {
	_, held := s.zsink.Held()
	if !held {
		s.account.Release()
	}
	return held
}

// Due reports whether a control message should be sent.
func (s *Session) Due() bool {
	_, ack := s.sink.Ack()
	_, request := s.source.Request()
	return s.update || s.fin == finDue || s.abort || ack || request || s.zsource.Pending() || s.zsink.Pending() || s.creditDue()
}

// creditDue reports whether the peer should be told of free buffers immediately: because it
// needs them (§10.5), or because so many are free that it soon will. Otherwise the next
// message tells it.
func (s *Session) creditDue() bool {
	return s.account.MustUpdate() || s.account.Gain() >= int(s.target)/2
}

// Control puts the next control message that is due into the Batch, and reports whether there is
// one that credit allows. failed means that the device sends nothing more; then only an
// AbortConn is tried.
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
	bare := s.account.May(credits.Bare)
	size, ack := s.sink.Ack()
	want, request := s.source.Request()
	held := s.ackHeld()
	switch {
	case bare && s.abort:
		m.MID = wire.MIDAbortConn
	case bare && (s.zsource.Pending() || s.zsink.Pending()):
		m, invalidate = s.nextAdvert()
	case bare && ack:
		m.MID, m.Size = wire.MIDChRcvBufAck, uint32(size)
	case bare && request && !held:
		// MSeqAck tells the peer whether its ChRcvBuf crossed ours. While the
		// acknowledgement is held back, MSeqAck is too old for that.
		m.MID, m.Size = wire.MIDChRcvBuf, uint32(want)
	case bare && s.fin == finDue:
		m.MID = wire.MIDDisConn
	case bare && s.update, s.creditDue() && s.account.May(credits.Update):
		m.MID = wire.MIDData
	default:
		return m, 0, false
	}
	return m, invalidate, true
}

// nextAdvert returns the next message about advertisements, which must be due, and the
// peer's region to invalidate with it.
func (s *Session) nextAdvert() (m wire.Message, invalidate rdma.STag) {
	m, stag, ok := s.zsource.Due()
	if !ok {
		m, stag, _ = s.zsink.Due()
	} else if m.MID == wire.MIDRdmaWrCompl && s.zsink.WantsPipelined() {
		m.Flags = wire.FlagReqPipe
	}
	if !s.invalidates {
		stag = 0
	}
	return m, rdma.STag(stag)
}

// controlTaken accounts for a message that is about to be sent. It must be called before,
// because the answer may arrive before Sent.
func (s *Session) controlTaken(m *wire.Message) {
	switch m.MID {
	case wire.MIDChRcvBufAck:
		s.sink.Acked()
		s.zsink.Resized(int(m.Size))
	case wire.MIDChRcvBuf:
		s.source.Requested(m.MSeq)
	case wire.MIDDisConn:
		s.fin = finGoing
	case wire.MIDData:
		s.update = false
	case wire.MIDRdmaWrCompl, wire.MIDSrcAvailCancel, wire.MIDSinkCancelAck:
		s.zsource.Took(m)
	case wire.MIDRdmaRdCompl, wire.MIDSendSm, wire.MIDSinkAvailCancel, wire.MIDSinkAvail:
		s.zsink.Took(m)
	case wire.MIDModeChange:
		if m.ModeOfSend { // the mode in which the peer sends
			s.zsink.Took(m)
		} else {
			s.zsource.Took(m)
		}
	}
}

// Preceded reports whether a control message must be sent before any payload, because it
// says what happens to what was sent before.
func (s *Session) Preceded() bool { return s.zsource.Pending() }

// Room returns how many messages with payload may be sent.
func (s *Session) Room() int {
	if s.Preceded() {
		return 0
	}
	return s.account.Room()
}

// Data fills the Batch with the first bytes of p, in at most room messages with at most size
// bytes of payload each. If a Read has an advertisement due, and size has room for its header
// and a byte, the Batch is one message that carries both (the Transaction mechanism, §9.4).
func (s *Session) Data(b *Batch, p []byte, room, size int) {
	b.Reset()
	s.source.Wrote(len(p))
	advert, due := s.zsink.Carry()
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
	s.zsource.Sending(len(b.WRs), b.bytes, false)
}

// Extension is the number of bytes that an advertisement occupies in a message with payload.
const Extension = wire.MaxHeaderLen - wire.HeaderLen

// Sent closes the Batch: its first n messages were posted, and the others will not be. It
// returns how many bytes of payload were posted, and whether control messages are due now.
func (s *Session) Sent(b *Batch, n int) (bytes int, due bool) {
	s.account.Sent(n)
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
			s.zsource.Unoffer(b.stag)
		}
		s.zsource.Sent(min(bytes, 1), bytes)
	default:
		if n > 0 && b.kind == batchCarrying {
			s.zsink.Carried()
		}
		s.source.Carried(bytes)
		s.zsource.Sent(n, bytes)
	}
	_, request := s.source.Request()
	return bytes, request || s.zsource.Pending() || s.zsink.Pending()
}
