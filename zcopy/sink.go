package zcopy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gosdp/gosdp/wire"
)

// Sink is the receiving half of a connection's zero copy: the SrcAvails that it has received,
// and the SinkAvail that it has sent. It is not safe for concurrent use. A nil Sink is valid,
// for a connection without zero copy: it suits no Read and has no message due.
//
// The unread part of the stream is first in private buffers, and then in the SrcAvails that
// are held, oldest first. A Source sends no payload after a SrcAvail, except for what a SendSm
// has asked for, and nothing is fetched until that has arrived.
//
// A Read waits with at most one SinkAvail. It sends none while a SrcAvail is held.
type Sink struct {
	mode   wire.Mode
	most   int  // SrcAvails that may be held: our MaxAdverts
	alone  bool // no SinkAvail is sent, because the peer accepts none in addition to a SrcAvail
	refuse bool // each SrcAvail is answered with SendSm
	worth  int  // bytes that are worth a transfer without a copy

	held    []held // SrcAvails that have not ended, oldest first
	asked   int    // bytes that will arrive as Data, because of SendSm
	sendSm  bool   // one is due, for the oldest SrcAvail or for a cancel
	cancel  bool   // a SrcAvailCancel is being carried out
	holdSeq uint32 // its MSeq

	state       sinkState
	advert      wire.Advert // what we advertise
	filled      int         // bytes that the peer has written
	cancelling  bool        // a SinkAvailCancel has been sent and is not done
	cancelDue   bool
	nonDiscards uint32
	ended       bool // the peer's DisConn was received
	crossed     bool // a SinkCancelAck may arrive for a SinkAvail that has ended

	change bool // a ModeChange to Combined is due

	reader int // bytes of the Read that waits, 0 if none does
	eager  int // SrcAvails in succession that found a Read waiting
	suited int // in Buffered mode: suitable Reads minus other Reads
	after  int // the value of suited at which the Sink leaves Buffered mode
	buffer int // size of a private buffer at the last Reading
	counts Counts
}

// held is a SrcAvail from the peer.
type held struct {
	stag   uint32
	va     uint64 // of the next byte to fetch
	left   int    // bytes not fetched
	flying int    // bytes being fetched
	come   int    // bytes fetched that no RdmaRdCompl has reported yet
}

type sinkState uint8

const (
	sinkNone sinkState = iota
	sinkDue            // the SinkAvail must be sent
	sinkOpen           // it has been sent
	sinkDone           // it has ended: see Outcome
)

// SinkConfig is the configuration of a Sink.
type SinkConfig struct {
	Refuse     bool // answer each SrcAvail with SendSm
	OurAdverts int  // our MaxAdverts
	PeerAdvert int  // the peer's
	// Worth is how many bytes are worth an RDMA Read of their own, or a SinkAvail.
	Worth int
}

// NewSink returns the Sink of a connection in Combined mode.
func NewSink(c SinkConfig) Sink {
	return Sink{
		mode: wire.ModeCombined, refuse: c.Refuse, most: c.OurAdverts, worth: c.Worth,
		alone: c.PeerAdvert < 2, // the Source uses the only one
		after: returnAfter,
	}
}

// Refuse answers every SrcAvail with SendSm from now on.
func (s *Sink) Refuse() {
	if s == nil {
		return
	}
	s.refuse = true
	s.refuseOldest()
}

// Reading notes that a Read with room for n bytes, more than 0, is about to wait. Private
// buffers have buffer bytes each.
func (s *Sink) Reading(n, buffer int) {
	if s == nil {
		return
	}
	s.reader, s.buffer = n, buffer
	if s.mode != wire.ModeBuffered || s.refuse {
		return
	}
	if !s.worthy(n, buffer) {
		s.suited = max(0, s.suited-1) // it may be for a header, or the end of a message
		return
	}
	if s.suited++; s.suited >= s.after && !s.change {
		s.change, s.suited = true, 0
		s.after = min(2*s.after, returnAtMost)
	}
}

// Read notes that no Read waits any more.
func (s *Sink) Read() {
	if s != nil {
		s.reader = 0
	}
}

// SrcAvail handles a SrcAvail that carries payload bytes, for which Payload must be called
// too.
func (s *Sink) SrcAvail(a wire.Advert, payload int) error {
	switch {
	case s.mode == wire.ModeBuffered:
		return errors.New("zcopy: §11.1: SrcAvail in Buffered mode")
	case s.mode == wire.ModeCombined && payload == 0:
		return errors.New("zcopy: §11.2: SrcAvail without payload in Combined mode")
	case s.mode == wire.ModeCombined && (len(s.held) > 0 || s.asked > 0):
		return errors.New("zcopy: §11.2: second SrcAvail in Combined mode")
	case s.mode == wire.ModePipelined && payload > 0:
		return errors.New("zcopy: §11.3: SrcAvail with payload in Pipelined mode")
	case s.cancel:
		return errors.New("zcopy: §9.5.4: SrcAvail after an unanswered SrcAvailCancel")
	case s.ended:
		return errors.New("zcopy: §8.2.1: SrcAvail after DisConn")
	case s.state == sinkOpen:
		return nil // our SinkAvail overrides it (§11.3)
	case len(s.held) >= s.most:
		return fmt.Errorf("zcopy: §6.2.1: more than %d advertisements", s.most)
	}
	if s.state == sinkDue {
		s.end() // none is sent while a SrcAvail is held
	}
	s.held = append(s.held, held{stag: a.STag, va: a.VA + uint64(payload), left: int(a.Len) - payload})
	if s.worthy(s.reader, s.buffer) {
		s.eager++
	} else {
		s.eager = 0
	}
	if s.refuse {
		s.refuseOldest()
	}
	return nil
}

// Payload handles n bytes of payload, which arrived in a Data message or a SinkAvail (asked),
// or in a SrcAvail. They use up the SinkAvail that is open (§9.5.1).
func (s *Sink) Payload(n int, asked bool) {
	if s == nil {
		return
	}
	if asked {
		s.asked -= min(n, s.asked)
	}
	switch s.state {
	case sinkOpen:
		s.end()
	case sinkDue:
		s.end() // its Read has something to read
		fallthrough
	default:
		s.nonDiscards++
	}
	if s.refuse {
		s.refuseOldest() // the next one, after the data of the one before has arrived
	}
}

// Bars reports whether n bytes of payload that are not in a SrcAvail are a violation: after a
// SrcAvail only what a SendSm has asked for may follow (§11.2, §11.3). Otherwise it would be
// read before bytes that precede it. While a SrcAvailCancel is handled, nothing is barred,
// because it is not known what it has crossed.
func (s *Sink) Bars(n int) bool {
	return s != nil && len(s.held) > 0 && !s.cancel && n > s.asked
}

// Holding reports whether a SrcAvail is held: the stream continues there after the bytes in
// private buffers.
func (s *Sink) Holding() bool { return len(s.held) > 0 }

// Announced reports whether the peer has advertised bytes that have neither been fetched nor
// arrived as Data.
func (s *Sink) Announced() bool {
	return s != nil && (s.asked > 0 || slices.ContainsFunc(s.held, func(h held) bool { return h.left+h.flying > 0 }))
}

// Suits reports whether a Read with room for n bytes should fetch from the oldest SrcAvail.
// A Read that is much smaller should not: an RDMA Read for each of many small Reads would be
// slower than any copy (see Decline).
func (s *Sink) Suits(n int) bool {
	if s == nil {
		return false
	}
	h := s.next()
	return h != nil && s.mayFetch() && (n >= s.worth || n >= h.left)
}

// mayFetch reports whether an RDMA Read may begin before any other message arrives or is sent.
func (s *Sink) mayFetch() bool { return !s.refuse && s.asked == 0 && !s.sendSm && !s.cancel }

// next returns the SrcAvail with the next byte to fetch, nil if there is none.
func (s *Sink) next() *held {
	for i := range s.held {
		if s.held[i].left > 0 {
			return &s.held[i]
		}
	}
	return nil
}

// worthy reports whether a Read with room for n bytes should be advertised. Private buffers
// have buffer bytes each.
func (s *Sink) worthy(n, buffer int) bool { return n > buffer && n >= s.worth }

// Decline answers the oldest SrcAvail with SendSm (§9.5.2), and reports whether that has
// made a SendSm due.
func (s *Sink) Decline() bool {
	if s == nil {
		return false
	}
	before := s.sendSm
	s.refuseOldest()
	return s.sendSm && !before
}

// refuseOldest makes a SendSm due for the oldest SrcAvail of which anything is left to fetch.
// The RdmaRdCompl for what was fetched is sent first (see Due).
func (s *Sink) refuseOldest() {
	left := 0
	for i := range s.held {
		if s.held[i].flying > 0 {
			return
		}
		left += s.held[i].left
	}
	if left > 0 && s.asked == 0 && !s.cancel {
		s.sendSm = true
	}
}

// Fetch returns the next RDMA Read for a Read with room for n bytes: its size, and the
// address at the peer. It is not ok if there is nothing to fetch, or not yet.
func (s *Sink) Fetch(n int) (size int, stag uint32, va uint64, ok bool) {
	h := s.next()
	if h == nil || !s.mayFetch() {
		return 0, 0, 0, false
	}
	size, stag, va = min(n, h.left), h.stag, h.va
	h.left -= size
	h.va += uint64(size)
	h.flying += size
	return size, stag, va, true
}

// Unfetch takes the last Fetch back, because the RDMA Read could not be posted.
func (s *Sink) Unfetch(size int) {
	for i := len(s.held) - 1; i >= 0; i-- {
		if h := &s.held[i]; h.flying > 0 {
			h.left += size
			h.va -= uint64(size)
			h.flying -= size
			break
		}
	}
	s.carryCancel()
}

// Fetched notes that the oldest RDMA Read, of size bytes, has completed.
func (s *Sink) Fetched(size int) {
	s.counts.Bytes += uint64(size)
	for i := range s.held {
		if h := &s.held[i]; h.flying > 0 {
			h.flying -= size
			h.come += size
			break
		}
	}
	s.carryCancel()
}

// SrcAvailCancel handles a SrcAvailCancel with MSeq seq (§9.5.4). No message may acknowledge
// it while Held says so.
func (s *Sink) SrcAvailCancel(seq uint32) error {
	if s.cancel {
		return errors.New("zcopy: §9.5.4: SrcAvailCancel after an unanswered SrcAvailCancel")
	}
	s.asked = 0 // ours: what a SendSm has asked for may never arrive
	if len(s.held) == 0 {
		return nil
	}
	s.sendSm = false
	s.cancel, s.holdSeq = true, seq
	s.carryCancel()
	return nil
}

// carryCancel answers a SrcAvailCancel when no RDMA Read is under way and the RdmaRdCompl for
// what was fetched has been sent.
func (s *Sink) carryCancel() {
	if !s.cancel {
		return
	}
	for i := range s.held {
		if h := &s.held[i]; h.flying > 0 || h.come > 0 {
			return
		}
	}
	if len(s.held) == 0 {
		s.cancel = false
		return
	}
	s.sendSm = true
}

// Held reports whether messages must not acknowledge the peer's message seq, a SrcAvailCancel,
// yet (§9.5.4).
func (s *Sink) Held() (seq uint32, ok bool) {
	if s == nil {
		return 0, false
	}
	return s.holdSeq, s.cancel && !s.sendSm
}

// MayOffer reports whether a Read with room for n bytes, which has found nothing to read,
// should be advertised. Private buffers have buffer bytes each.
func (s *Sink) MayOffer(n, buffer int) bool {
	return s != nil && s.mode == wire.ModePipelined && !s.alone && !s.refuse && s.state == sinkNone && !s.ended &&
		len(s.held) == 0 && s.asked == 0 && s.worthy(n, buffer)
}

// Offer makes a SinkAvail due for the Read's memory. MayOffer must have allowed it. Outcome
// must be called until it reports the end.
func (s *Sink) Offer(stag uint32, va uint64, n int) {
	s.state, s.filled = sinkDue, 0
	s.advert = wire.Advert{Len: uint32(n), STag: stag, VA: va}
}

// Resized notes that a ChRcvBufAck is about to be sent: private buffers have buffer bytes each
// from now on, and a later SinkAvail must be larger (§10.6).
func (s *Sink) Resized(buffer int) {
	if s != nil && s.state == sinkDue && int(s.advert.Len) <= buffer {
		s.end()
	}
}

// Outcome reports whether the SinkAvail has ended, so that the peer does not write to the
// memory any more, and how many bytes were filled: 0 if payload arrived instead, or nothing.
// A SinkAvail whose end was reported is forgotten.
func (s *Sink) Outcome() (n int, over bool) {
	if s.state != sinkDone {
		return 0, false
	}
	s.state = sinkNone
	return s.filled, true
}

// Advertised returns the STag that the peer may invalidate, or 0.
func (s *Sink) Advertised() uint32 {
	if s.state != sinkOpen {
		return 0
	}
	return s.advert.STag
}

// end ends the SinkAvail and its cancel.
func (s *Sink) end() { s.state, s.cancelling, s.cancelDue = sinkDone, false, false }

// Withdraw withdraws the SinkAvail (§9.5.5), if there is one, and reports whether that has
// made a SinkAvailCancel due.
func (s *Sink) Withdraw() bool {
	switch {
	case s.state == sinkDue:
		s.end()
	case s.state == sinkOpen && !s.cancelling && !s.cancelDue:
		s.cancelDue = true
		s.counts.Cancels++
		return true
	}
	return false
}

// Abandon ends the SinkAvail, because the connection has ended.
func (s *Sink) Abandon() { s.dropOffer() }

// WrCompl handles an RdmaWrCompl for n bytes. It has invalidated the region stag, or none if
// stag is 0 (§9.3).
func (s *Sink) WrCompl(n int, stag uint32) error {
	switch {
	case s.state != sinkOpen:
		return errors.New("zcopy: §9.3: RdmaWrCompl without a SinkAvail")
	case n > int(s.advert.Len):
		return fmt.Errorf("zcopy: §9.3: RdmaWrCompl for %d bytes of a SinkAvail of %d", n, s.advert.Len)
	case stag != 0 && stag != s.advert.STag:
		return fmt.Errorf("zcopy: §9.3: RdmaWrCompl invalidates STag %#x, the SinkAvail's is %#x", stag, s.advert.STag)
	}
	s.filled = n
	s.counts.Bytes += uint64(n)
	// The source may have cancelled the rest, or have sent this before the SinkAvailCancel arrived.
	s.crossed = s.crossed || s.cancelling && n < int(s.advert.Len)
	s.end()
	return nil
}

// CancelAck handles a SinkCancelAck (§9.5.5).
func (s *Sink) CancelAck() error {
	switch {
	case s.state == sinkOpen && s.cancelling:
		s.end()
	case s.crossed:
		s.crossed = false
	default:
		return errors.New("zcopy: §9.5.5: SinkCancelAck without a SinkAvailCancel")
	}
	return nil
}

// End handles the peer's DisConn, which ends our SinkAvail (§8.2.1).
func (s *Sink) End() error {
	if s == nil {
		return nil
	}
	if len(s.held) > 0 || s.asked > 0 {
		return errors.New("zcopy: §8.2.1: DisConn before the end of advertised data")
	}
	s.ended, s.crossed = true, s.crossed || s.cancelling
	s.dropOffer()
	return nil
}

// dropOffer ends the SinkAvail, if there is one.
func (s *Sink) dropOffer() {
	if s.state != sinkNone {
		s.end()
	}
}

// ModeChange handles the source's change of mode (S = 0, §12).
func (s *Sink) ModeChange(to wire.Mode) error {
	if err := transition(s.mode, to, true); err != nil {
		return err
	}
	if to == wire.ModeBuffered && (len(s.held) > 0 || s.asked > 0) {
		return errors.New("zcopy: §12.1: change to Buffered mode before the end of the SrcAvail")
	}
	if s.mode == wire.ModePipelined {
		s.dropOffer() // §12.4
	}
	s.mode = to
	s.eager, s.suited = 0, 0
	s.counts.ModeChanges++
	return nil
}

// Pending reports whether Due has a message.
func (s *Sink) Pending() bool {
	return s != nil && (len(s.held) > 0 && s.held[0].come > 0 || s.sendSm || s.cancelDue || s.change || s.state == sinkDue)
}

// Due returns the message to send next, and the peer's STag to invalidate with it, or 0. It
// is not ok if none is due. The owner fills in the rest of the header, calls Took and sends
// it.
func (s *Sink) Due() (m wire.Message, invalidate uint32, ok bool) {
	if len(s.held) > 0 && s.held[0].come > 0 {
		h := &s.held[0]
		m.MID, m.Size = wire.MIDRdmaRdCompl, uint32(h.come)
		if s.WantsPipelined() {
			m.Flags = wire.FlagReqPipe
		}
		if h.left == 0 && h.flying == 0 {
			invalidate = h.stag
		}
		return m, invalidate, true
	}
	switch {
	case s.sendSm:
		m.MID = wire.MIDSendSm
	case s.cancelDue:
		m.MID = wire.MIDSinkAvailCancel
	case s.change:
		m.MID, m.Mode, m.ModeOfSend = wire.MIDModeChange, wire.ModeCombined, true
	case s.state == sinkDue:
		m.MID = wire.MIDSinkAvail
		m.Advert, _ = s.Carry()
	default:
		return m, 0, false
	}
	return m, 0, true
}

// WantsPipelined reports whether completions should ask for Pipelined mode (REQ_PIPE).
func (s *Sink) WantsPipelined() bool {
	return s.mode == wire.ModeCombined && s.eager >= waitsMatter && !s.refuse
}

// Took notes that the message that Due returned has its MSeq and is about to be sent.
func (s *Sink) Took(m *wire.Message) {
	switch m.MID {
	case wire.MIDRdmaRdCompl:
		h := &s.held[0]
		h.come = 0
		if h.left == 0 && h.flying == 0 {
			s.held = append(s.held[:0], s.held[1:]...)
		}
		s.carryCancel()
		if s.refuse {
			s.refuseOldest()
		}
	case wire.MIDSendSm:
		s.sendSm = false
		s.counts.SendSm++
		if s.cancel {
			s.held, s.cancel = s.held[:0], false
			return
		}
		s.asked += s.held[0].left
		s.held = append(s.held[:0], s.held[1:]...)
	case wire.MIDSinkAvailCancel:
		s.cancelDue, s.cancelling = false, true
	case wire.MIDModeChange:
		s.mode, s.change = wire.ModeCombined, false
		s.eager = 0
		s.counts.ModeChanges++
	case wire.MIDSinkAvail:
		s.Carried()
	}
}

// Carry returns the SinkAvail that is due, for a message that also carries payload: the
// Transaction mechanism (§9.4).
//
// The device may refuse a message with payload. Until that is known, no message of the peer
// may be handled, because its meaning depends on it: whether a SrcAvail has crossed the
// SinkAvail, and what payload has used up.
func (s *Sink) Carry() (a wire.Advert, ok bool) {
	if s == nil {
		return a, false
	}
	a = s.advert
	a.NonDiscards = s.nonDiscards
	return a, s.state == sinkDue
}

// Carried notes that the message of Carry was sent.
func (s *Sink) Carried() {
	s.state = sinkOpen
	s.counts.Adverts++
}

// Mode returns the direction's mode.
func (s *Sink) Mode() wire.Mode { return s.mode }

// Counts returns what was done so far. SendSm counts those that were sent.
func (s *Sink) Counts() Counts { return s.counts }
