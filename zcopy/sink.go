package zcopy

import (
	"errors"
	"fmt"

	"github.com/gosdp/gosdp/wire"
)

// Sink is the receiving half of a connection's zero copy: the SrcAvails that it
// was sent, and the SinkAvail that it has sent. Unsafe for concurrent use. A nil
// Sink is that of an end that takes no part, and that was sent none: no Read has
// to do with it, and nothing about it is due.
//
// What is unread of the stream lies first in private buffers, and behind that in
// the SrcAvails that are held, oldest first: a Source sends no payload behind a
// SrcAvail, but for what a SendSm has asked for, and until that has come nothing
// is fetched.
//
// A Read waits with one SinkAvail at most. It sends none while a SrcAvail is held.
type Sink struct {
	mode   wire.Mode
	most   int  // SrcAvails held: our MaxAdverts
	alone  bool // the peer takes no SinkAvail beside a SrcAvail
	refuse bool // each SrcAvail is answered with SendSm
	worth  int  // bytes that are worth moving without a copy, whatever else there is

	held    []held // SrcAvails that have not ended, oldest first
	asked   int    // bytes that are to come as Data, because of SendSm
	sendSm  bool   // one is due, for the oldest SrcAvail or for a cancel
	cancel  bool   // a SrcAvailCancel is being carried out
	holdSeq uint32 // its MSeq

	state       sinkState
	advert      wire.Advert // what we advertise
	filled      int         // bytes that came by RDMA Write
	cancelling  bool        // a SinkAvailCancel has been sent and is not done
	cancelDue   bool
	nonDiscards uint32
	ended       bool // the peer's DisConn has come
	crossed     bool // and has crossed a SinkAvailCancel, which may be answered

	change bool // a ModeChange to Combined is due

	reader int // bytes of the Read that waits, 0 if none does
	eager  int // SrcAvails in succession that found a Read waiting
	suited int // Reads that could have done without a copy, less those that could not, in Buffered mode
	after  int // of those, how many make us leave Buffered mode
	buffer int // bytes in a private buffer, when Reading was last told
	counts Counts
}

// held is a SrcAvail of the peer's.
type held struct {
	stag   uint32
	va     uint64 // of the next byte to fetch
	left   int    // bytes not fetched
	flying int    // bytes being fetched
	come   int    // bytes fetched that no RdmaRdCompl has told
}

type sinkState uint8

const (
	sinkNone sinkState = iota
	sinkDue            // the SinkAvail is to be sent
	sinkOpen           // it has been sent
	sinkDone           // it has ended: see Outcome
)

// SinkConfig is what a Sink has to know.
type SinkConfig struct {
	Refuse     bool // take nothing without a copy: each SrcAvail is answered with SendSm
	OurAdverts int  // our MaxAdverts
	PeerAdvert int  // the peer's
	// Worth is how many bytes are worth an RDMA Read of their own, or a SinkAvail,
	// whatever else there is to read.
	Worth int
}

// NewSink returns the Sink of a connection in Combined mode.
func NewSink(c SinkConfig) Sink {
	return Sink{
		mode: wire.ModeCombined, refuse: c.Refuse, most: c.OurAdverts, worth: c.Worth,
		alone: c.PeerAdvert < 2, // the Source has it
		after: returnAfter,
	}
}

// Refuse has every SrcAvail answered with SendSm from now on.
func (s *Sink) Refuse() {
	if s == nil {
		return
	}
	s.refuse = true
	s.refuseOldest()
}

// Reading tells that a Read with room for n bytes, more than 0, is about to wait
// while private buffers have buffer bytes each.
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

// Read tells that no Read waits any more.
func (s *Sink) Read() {
	if s != nil {
		s.reader = 0
	}
}

// SrcAvail takes in an advertisement with payload bytes that ride along, which
// Payload is told of as well.
func (s *Sink) SrcAvail(a wire.Advert, payload int) error {
	switch {
	case s.mode == wire.ModeBuffered:
		return errors.New("zcopy: §11.1: SrcAvail in Buffered mode")
	case s.mode == wire.ModeCombined && payload == 0:
		return errors.New("zcopy: §11.2: SrcAvail without payload in Combined mode")
	case s.mode == wire.ModeCombined && (len(s.held) > 0 || s.asked > 0):
		return errors.New("zcopy: §11.2: a second SrcAvail in Combined mode")
	case s.mode == wire.ModePipelined && payload > 0:
		return errors.New("zcopy: §11.3: SrcAvail with payload in Pipelined mode")
	case s.cancel:
		return errors.New("zcopy: §9.5.4: SrcAvail behind a SrcAvailCancel that was not answered")
	case s.ended:
		return errors.New("zcopy: §8.2.1: SrcAvail after DisConn")
	case s.state == sinkOpen:
		return nil // ours wins (§11.3)
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

// Payload takes in a message with n bytes of payload, which may be of a Data
// message or a SinkAvail (asked), or ride in a SrcAvail. It uses up the SinkAvail
// that is open (§9.5.1).
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
		s.refuseOldest() // the next one, now that the data of the one before is here
	}
}

// Bars reports that n bytes of payload, which do not ride in a SrcAvail, must not
// come now: behind a SrcAvail comes what a SendSm has asked for, and nothing else
// (§11.2, §11.3). It would be read before bytes that are in front of it. What a
// SrcAvailCancel may have crossed is not known.
func (s *Sink) Bars(n int) bool {
	return s != nil && len(s.held) > 0 && !s.cancel && n > s.asked
}

// Holding reports that the stream goes on in a SrcAvail: its bytes are behind
// those in private buffers.
func (s *Sink) Holding() bool { return len(s.held) > 0 }

// Announced reports that the peer has advertised bytes of the stream that were
// not fetched and have not come as Data.
func (s *Sink) Announced() bool { return s != nil && (s.next() != nil || s.asked > 0) }

// Suits reports whether a Read with room for n bytes should fetch from the oldest
// SrcAvail. Not if it is much smaller: an RDMA Read for each of many small Reads
// would be the slowest way of all (see Decline).
func (s *Sink) Suits(n int) bool {
	if s == nil {
		return false
	}
	h := s.next()
	return h != nil && s.mayFetch() && (n >= s.worth || n >= h.left)
}

// mayFetch reports that nothing has to come or to go first.
func (s *Sink) mayFetch() bool { return !s.refuse && s.asked == 0 && !s.sendSm && !s.cancel }

// next returns the SrcAvail that the next byte to fetch is in, nil if there is
// none.
func (s *Sink) next() *held {
	for i := range s.held {
		if s.held[i].left > 0 {
			return &s.held[i]
		}
	}
	return nil
}

// worthy reports whether a Read with room for n bytes should be advertised, when
// private buffers have buffer bytes each.
func (s *Sink) worthy(n, buffer int) bool { return n > buffer && n >= s.worth }

// Decline answers the oldest SrcAvail with SendSm (§9.5.2), and reports whether
// one is due that was not before.
func (s *Sink) Decline() bool {
	if s == nil {
		return false
	}
	before := s.sendSm
	s.refuseOldest()
	return s.sendSm && !before
}

// refuseOldest makes a SendSm due for the oldest SrcAvail of which there is
// anything to fetch. The RdmaRdCompl of what was fetched goes first (see Due).
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

// Fetch returns an RDMA Read to post next for a Read with room for n bytes: how
// many bytes, and from where. Not ok if there is nothing to fetch, or not yet.
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

// Unfetch takes the last Fetch back: the RDMA Read could not be posted.
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

// Fetched tells that the oldest RDMA Read, of size bytes, has completed.
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

// SrcAvailCancel takes in a SrcAvailCancel with the number seq (§9.5.4). Until
// Held says otherwise, no message may acknowledge it.
func (s *Sink) SrcAvailCancel(seq uint32) error {
	if s.cancel {
		return errors.New("zcopy: §9.5.4: a SrcAvailCancel behind one that was not answered")
	}
	s.asked = 0 // ours: what a SendSm has asked for and has not come may not come at all
	if len(s.held) == 0 {
		return nil
	}
	s.sendSm = false
	s.cancel, s.holdSeq = true, seq
	s.carryCancel()
	return nil
}

// carryCancel answers a SrcAvailCancel when nothing is being fetched any more and
// the RdmaRdCompl of what was has gone.
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

// Held reports that messages must not acknowledge the peer's message seq, a
// SrcAvailCancel, yet (§9.5.4).
func (s *Sink) Held() (seq uint32, ok bool) {
	if s == nil {
		return 0, false
	}
	return s.holdSeq, s.cancel && !s.sendSm
}

// MayOffer reports whether a Read with room for n bytes, which has found nothing
// to read, should be advertised. Private buffers have buffer bytes each.
func (s *Sink) MayOffer(n, buffer int) bool {
	return s != nil && s.mode == wire.ModePipelined && !s.alone && !s.refuse && s.state == sinkNone && !s.ended &&
		len(s.held) == 0 && s.asked == 0 && s.worthy(n, buffer)
}

// Offer advertises the Read's memory: a SinkAvail is due. The caller has asked
// MayOffer, and takes Outcome until it is over.
func (s *Sink) Offer(stag uint32, va uint64, n int) {
	s.state, s.filled = sinkDue, 0
	s.advert = wire.Advert{Len: uint32(n), STag: stag, VA: va}
}

// Resized tells that a ChRcvBufAck goes: private buffers have buffer bytes each
// from now on, and a SinkAvail that is behind it has to be larger (§10.6).
func (s *Sink) Resized(buffer int) {
	if s != nil && s.state == sinkDue && int(s.advert.Len) <= buffer {
		s.end()
	}
}

// Outcome returns whether the SinkAvail has ended, so that its memory is the
// Read's again, and how many bytes of it were filled: 0 if the payload of a
// message has come instead, or nothing has. Once it has ended it is forgotten.
func (s *Sink) Outcome() (n int, over bool) {
	if s.state != sinkDone {
		return 0, false
	}
	s.state = sinkNone
	return s.filled, true
}

// Advertised returns the STag that a peer may invalidate; 0: none.
func (s *Sink) Advertised() uint32 {
	if s.state != sinkOpen {
		return 0
	}
	return s.advert.STag
}

// end ends the SinkAvail, and with it its cancel.
func (s *Sink) end() { s.state, s.cancelling, s.cancelDue = sinkDone, false, false }

// Withdraw has the SinkAvail withdrawn (§9.5.5), if there is one, and reports
// whether a SinkAvailCancel is due that was not before.
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

// WrCompl takes in an RdmaWrCompl for n bytes, with which the peer has
// invalidated the region stag, or none (§9.3).
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
	s.end()
	return nil
}

// CancelAck takes in a SinkCancelAck (§9.5.5).
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

// End takes in the peer's DisConn, which ends our SinkAvail (§8.2.1).
func (s *Sink) End() error {
	if s == nil {
		return nil
	}
	if len(s.held) > 0 || s.asked > 0 {
		return errors.New("zcopy: §8.2.1: DisConn before all that was advertised")
	}
	s.ended, s.crossed = true, s.cancelling
	s.dropOffer()
	return nil
}

// dropOffer ends the SinkAvail, if there is one.
func (s *Sink) dropOffer() {
	if s.state != sinkNone {
		s.end()
	}
}

// ModeChange takes in the source's change of mode (S = 0, §12).
func (s *Sink) ModeChange(to wire.Mode) error {
	if err := transition(s.mode, to, true); err != nil {
		return err
	}
	if to == wire.ModeBuffered && (len(s.held) > 0 || s.asked > 0) {
		return errors.New("zcopy: §12.1: to Buffered mode before the SrcAvail is done")
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

// Due returns the message that is to go next and the peer's STag to invalidate
// with it, 0 for none; not ok if none is due. The owner fills in the rest of the
// header, sends it, and tells Took.
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

// WantsPipelined reports that completions should say so (REQ_PIPE).
func (s *Sink) WantsPipelined() bool {
	return s.mode == wire.ModeCombined && s.eager >= waitsMatter && !s.refuse
}

// Took tells that the message Due has returned has its MSeq and goes.
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

// Carry returns the SinkAvail that is due, for a message that has payload to
// carry anyway: the Transaction mechanism (§9.4).
//
// A message with payload may be refused by the device. Nothing that the peer
// has sent may be taken in before that is known, because it depends on it what
// that means: whether a SrcAvail has crossed a SinkAvail, and what payload has
// used up.
func (s *Sink) Carry() (a wire.Advert, ok bool) {
	if s == nil {
		return a, false
	}
	a = s.advert
	a.NonDiscards = s.nonDiscards
	return a, s.state == sinkDue
}

// Carried tells that the message of Carry has gone.
func (s *Sink) Carried() {
	s.state = sinkOpen
	s.counts.Adverts++
}

// Mode returns the direction's mode.
func (s *Sink) Mode() wire.Mode { return s.mode }

// Counts returns what was done so far. SendSm counts those that went.
func (s *Sink) Counts() Counts { return s.counts }
