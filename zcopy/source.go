package zcopy

import (
	"errors"
	"fmt"

	"github.com/gosdp/gosdp/wire"
)

// Never is the threshold of an end that does not use zero copy.
const Never = -1

// Source is the sending half of a connection's zero copy: the SrcAvails that it has sent, and
// the SinkAvails that it has received. It is not safe for concurrent use. A nil Source is
// valid, for a connection without zero copy: it plans no Write and has no message due.
//
// A Source serves one Write of the program at a time. The bytes of the Write are sent in
// order, and each is in one of four states:
//
//	done | asked for | offered (in the order of the SrcAvails) | not begun
//
// The peer has the bytes that are done: copied, fetched or filled. The bytes that are
// asked for are sent as Data, because a SendSm has answered their SrcAvail.
type Source struct {
	mode      wire.Mode
	threshold int // bytes; longer Writes are advertised. Negative: none are
	most      int // SrcAvails that may be outstanding
	fill      int // SinkAvails that may be outstanding: our MaxAdverts
	piece     int // maximum bytes in one SrcAvail

	offers []offer  // SrcAvails that have not ended, oldest first
	ended  []uint32 // STags that are no longer advertised and must be invalidated
	asked  int      // bytes that SendSm has asked for and that were not sent
	plain  bool     // the rest of this Write is sent as Data
	moved  int      // bytes that the peer has fetched since Moved

	cancel    cancelState
	cancelSeq uint32 // MSeq of the SrcAvailCancel, once it has been sent

	sinks     []wire.Advert // SinkAvails that are not used, oldest first
	potential uint32        // PotentialNonDiscards
	batch     int           // messages with payload that are being posted; see Sending
	lessAsked int           // how much they have reduced asked
	later     []wire.Advert // SinkAvails that arrived meanwhile; Len 0 is a SinkAvailCancel
	filling   bool          // RDMA Writes into an advertisement are under way
	filled    wire.Advert   // the advertisement that they go into; Len is how much of it they fill
	wrote     int           // bytes of it for which RDMA Writes were posted
	unwanted  bool          // the peer has withdrawn it
	wrCompl   bool          // RdmaWrCompl is due for it
	cancelAck bool          // SinkCancelAck is due

	change    bool // a ModeChange to next is due
	next      wire.Mode
	changing  bool   // the change from Pipelined to Combined mode is not acknowledged
	changeSeq uint32 // MSeq of that ModeChange
	atChange  uint32 // potential at that time

	hints, fails int // see mode.go
	counts       Counts
}

// Counts counts what one half of a connection's zero copy has done.
type Counts struct {
	Bytes       uint64 // bytes transferred without a copy
	Adverts     uint64 // advertisements sent
	Cancels     uint64 // withdrawals of those
	SendSm      uint64 // advertisements answered by SendSm
	ModeChanges uint64 // made or followed
}

// offer is a SrcAvail that has not ended.
type offer struct {
	stag uint32
	left int  // bytes that are not done
	got  bool // some are done
}

type cancelState uint8

const (
	cancelNone cancelState = iota
	cancelDue
	cancelSent
)

// SourceConfig is the configuration of a Source.
type SourceConfig struct {
	Threshold  int // bytes; longer Writes are advertised. Negative: none are
	PeerAdvert int // the peer's MaxAdverts
	OurAdverts int // our own MaxAdverts
	MaxOffer   int // maximum bytes in one SrcAvail; 0: the protocol's limit
}

// NewSource returns a Source in Combined mode, in which every direction starts (§12).
func NewSource(c SourceConfig) Source {
	if c.MaxOffer == 0 {
		c.MaxOffer = maxOffer
	}
	return Source{
		mode: wire.ModeCombined, threshold: c.Threshold,
		// The peer's MaxAdverts counts advertisements of both kinds (§11.3). One of them is
		// reserved for the Sink.
		most: max(1, c.PeerAdvert-1), fill: c.OurAdverts, piece: c.MaxOffer,
	}
}

// maxOffer is less than the protocol's 2³¹, so that it fits into an int of 32 bits.
const maxOffer = 1 << 30

// Ride is how many bytes of its buffer a SrcAvail carries in Combined mode, where it must
// carry some (§11.2): up to the next cache line of an aligned buffer.
const Ride = 64

// Step is what a Write does next.
type Step uint8

const (
	Wait  Step = iota // wait for the peer
	Copy              // send N bytes as Data
	Offer             // register N bytes, call Offered, and send a SrcAvail that carries the first Ride of them
	Fill              // call Filling, post RDMA Writes of up to N bytes to Advert, and call Filled
	Done              // all bytes are done, or none of the rest is exposed any more
)

// Plan is a Step with its arguments.
type Plan struct {
	Step   Step
	N      int
	Skip   int // Offer: bytes before these that are offered already
	Ride   int
	Advert wire.Advert
}

// Wants reports whether this Source plans a Write of n bytes. If not, the Write is sent as
// Data.
func (s *Source) Wants(n int) bool {
	return s != nil && s.threshold >= 0 && n > s.threshold && s.mode != wire.ModeBuffered && !s.stuck()
}

// stuck reports whether a SrcAvailCancel is due that must precede the next SrcAvail.
func (s *Source) stuck() bool { return s.cancel == cancelDue && len(s.offers) == 0 }

// Begin starts a Write.
func (s *Source) Begin() { s.plain = false }

// Next returns the next step of a Write of which rest bytes are not done. stop means that the call
// must end.
func (s *Source) Next(rest int, stop bool) Plan {
	s.dropStale()
	offered := 0
	for i := range s.offers {
		offered += s.offers[i].left
	}
	left := rest - s.asked - offered
	switch {
	case s.filling && s.wrote > 0 && (stop || s.unwanted):
		s.endFill() // no more is written than was begun
		return Plan{Step: Wait}
	case s.filling:
		a := s.filled
		a.VA += uint64(s.wrote)
		return Plan{Step: Fill, N: int(a.Len) - s.wrote, Advert: a}
	case s.wrCompl:
		return Plan{Step: Wait} // no payload between the RDMA Writes and their RdmaWrCompl
	case stop:
		if len(s.offers) > 0 {
			s.Withdraw()
			return Plan{Step: Wait}
		}
		if s.asked > 0 {
			// Ours: the peer expects bytes that will not be sent. A cancel tells it, although
			// nothing is left that it could answer.
			s.asked, s.cancel = 0, cancelDue
		}
		return Plan{Step: Done}
	case rest == 0:
		return Plan{Step: Done}
	case s.asked > 0:
		return Plan{Step: Copy, N: min(s.asked, rest)}
	case s.cancel != cancelNone || left == 0:
		return Plan{Step: Wait}
	}
	if len(s.offers) == 0 && rest > s.threshold && s.mode == wire.ModePipelined && len(s.sinks) > 0 {
		return Plan{Step: Fill, N: min(rest, int(s.sinks[0].Len), s.piece), Advert: s.sinks[0]}
	}
	if !s.plain && left > s.threshold && s.mode != wire.ModeBuffered {
		room := s.most
		if s.mode == wire.ModeCombined {
			room = 1
		}
		if len(s.offers) >= room {
			return Plan{Step: Wait}
		}
		p := Plan{Step: Offer, N: min(left, s.piece), Skip: rest - left}
		if s.mode == wire.ModeCombined {
			if p.Ride = min(Ride, p.N-1); p.Ride == 0 {
				return Plan{Step: Copy, N: left} // a single byte cannot be advertised
			}
		}
		return p
	}
	if len(s.offers) > 0 {
		return Plan{Step: Wait} // no payload may follow a SrcAvail
	}
	return Plan{Step: Copy, N: left}
}

// Offered notes that the SrcAvail of a Plan is about to be posted, for the region stag. The
// bytes that it carries count as done; see Sent.
func (s *Source) Offered(p Plan, stag uint32) {
	s.offers = append(s.offers, offer{stag: stag, left: p.N - p.Ride})
	s.counts.Adverts++
}

// Unoffer takes Offered back, because the SrcAvail could not be posted.
func (s *Source) Unoffer(stag uint32) {
	s.counts.Adverts--
	if n := len(s.offers); n > 0 && s.offers[n-1].stag == stag {
		s.offers = s.offers[:n-1]
	}
	if len(s.offers) == 0 {
		s.cancelled()
	}
}

// Sending notes that messages with payload are about to be posted. They carry n bytes of the
// Write, in Data messages or, if ride is set, in a SrcAvail. Sent must follow, before Next,
// Took or another Sending. The peer may answer in between. SinkAvails and their cancels that
// arrive wait for Sent, because whether they are stale depends on how many messages are sent.
func (s *Source) Sending(messages, n int, ride bool) {
	if s == nil {
		return
	}
	s.batch = messages
	s.potential += uint32(messages)
	s.lessAsked = 0
	if !ride {
		s.lessAsked = min(n, s.asked)
		s.asked -= s.lessAsked
	}
}

// Sent notes how many of those messages were posted, with how many bytes.
func (s *Source) Sent(messages, n int) {
	if s == nil {
		return
	}
	s.potential -= uint32(s.batch - messages)
	s.asked += s.lessAsked - min(n, s.lessAsked)
	s.batch = 0
	for _, a := range s.later {
		if a.Len == 0 {
			s.SinkAvailCancel()
		} else {
			s.admit(a)
		}
	}
	s.later = s.later[:0]
}

// Filling notes that RDMA Writes for the Plan, a Fill, are about to be posted. The
// advertisement is in process from the first of them on (§9.5.5).
func (s *Source) Filling(p Plan) {
	if s.filling {
		return
	}
	s.filling, s.filled, s.wrote, s.unwanted = true, p.Advert, 0, false
	s.filled.Len = uint32(p.N)
	s.sinks = append(s.sinks[:0], s.sinks[1:]...)
}

// Unwanted reports whether the peer has withdrawn the advertisement that is being
// filled. It waits for the RdmaWrCompl nevertheless.
func (s *Source) Unwanted() bool { return s.unwanted }

// Filled notes that RDMA Writes of the next n bytes of the Fill have been posted. After
// the last one an RdmaWrCompl is due (§9.3).
func (s *Source) Filled(n int) {
	if s.wrote += n; s.wrote == int(s.filled.Len) {
		s.endFill()
	}
}

// endFill makes the RdmaWrCompl due for what was written.
func (s *Source) endFill() {
	s.filling, s.wrCompl = false, true
	s.filled.Len = uint32(s.wrote)
	s.counts.Bytes += uint64(s.wrote)
}

// Withdraw withdraws the SrcAvails that are outstanding (§9.5.4). The rest of the Write is
// sent as Data.
func (s *Source) Withdraw() {
	if len(s.offers) == 0 || s.cancel != cancelNone {
		return
	}
	s.cancel, s.plain = cancelDue, true
	s.counts.Cancels++
	if !s.offers[0].got {
		s.inVain()
	}
}

// Overdue withdraws the SrcAvails that are outstanding, unless the peer has fetched
// bytes since Moved was last called.
func (s *Source) Overdue() {
	if s.moved == 0 {
		s.Withdraw()
	}
}

// Plain notes that the rest of the Write is sent as Data, because its memory cannot be advertised.
func (s *Source) Plain() { s.plain = true }

// Abandon ends every SrcAvail, because the connection has ended.
func (s *Source) Abandon() {
	for len(s.offers) > 0 {
		s.endOldest(false)
	}
}

// Outstanding returns how many SrcAvails have not ended.
func (s *Source) Outstanding() int {
	if s == nil {
		return 0
	}
	return len(s.offers)
}

// Moved returns how many bytes the peer has fetched since the last call.
func (s *Source) Moved() (n int) {
	n, s.moved = s.moved, 0
	return n
}

// Ended returns the STag of a region that is no longer advertised, which the owner must
// invalidate. It is not ok if there is none.
func (s *Source) Ended() (stag uint32, ok bool) {
	if len(s.ended) == 0 {
		return 0, false
	}
	stag = s.ended[0]
	s.ended = append(s.ended[:0], s.ended[1:]...)
	return stag, true
}

// RdCompl handles an RdmaRdCompl for n bytes of the oldest SrcAvail. It has invalidated the
// region stag, or none if stag is 0 (§9.2).
func (s *Source) RdCompl(n int, stag uint32, reqPipe bool) error {
	switch {
	case s.asked > 0:
		return errors.New("zcopy: §9.2: RdmaRdCompl before the data that SendSm requested")
	case len(s.offers) == 0:
		return errors.New("zcopy: §9.2: RdmaRdCompl without a SrcAvail")
	}
	o := &s.offers[0]
	switch {
	case n > o.left:
		return fmt.Errorf("zcopy: §9.2: RdmaRdCompl for %d bytes of a SrcAvail of which %d were left", n, o.left)
	case stag != 0 && stag != o.stag:
		return fmt.Errorf("zcopy: §9.2: RdmaRdCompl invalidates STag %#x, the SrcAvail's is %#x", stag, o.stag)
	case stag != 0 && n < o.left:
		return fmt.Errorf("zcopy: §9.2: RdmaRdCompl for %d of %d bytes invalidates STag %#x", n, o.left, stag)
	}
	o.left -= n
	o.got = true
	s.moved += n
	s.counts.Bytes += uint64(n)
	s.fails = 0
	if reqPipe {
		s.Hint()
	} else {
		s.hints = 0
	}
	if o.left == 0 {
		s.endOldest(stag != 0)
	}
	return nil
}

// endOldest removes the oldest SrcAvail.
func (s *Source) endOldest(invalidated bool) {
	if !invalidated {
		s.ended = append(s.ended, s.offers[0].stag)
	}
	s.offers = append(s.offers[:0], s.offers[1:]...)
	if len(s.offers) == 0 {
		s.cancelled()
	}
}

// cancelled ends a cancel, because no SrcAvail is outstanding. If it was not sent, it need
// not be.
func (s *Source) cancelled() { s.cancel = cancelNone }

// SendSm handles a SendSm in a message that acknowledges ours up to ack. It answers the
// oldest SrcAvail (§9.5.2), or a SrcAvailCancel (§9.5.4).
func (s *Source) SendSm(ack uint32) error {
	if len(s.offers) == 0 {
		return errors.New("zcopy: §9.5.2: SendSm without a SrcAvail")
	}
	s.counts.SendSm++
	if s.cancel == cancelSent && int32(ack-s.cancelSeq) >= 0 {
		for len(s.offers) > 0 {
			s.endOldest(false)
		}
		return nil
	}
	if s.asked == 0 && !s.offers[0].got {
		s.inVain()
	}
	s.asked += s.offers[0].left
	s.endOldest(false)
	return nil
}

// SinkAvail handles a SinkAvail in a message that acknowledges ours up to ack. The peer's
// private buffers have buffer bytes each.
func (s *Source) SinkAvail(a wire.Advert, ack uint32, buffer int) error {
	switch {
	case s.mode != wire.ModePipelined && s.changing && int32(ack-s.changeSeq) < 0:
		// The sink drops this one when the ModeChange arrives. Ours: if an earlier message
		// with payload has used it up before that, the counts must include that.
		if a.NonDiscards != s.atChange {
			s.atChange--
			s.potential--
		}
		return nil
	case s.mode != wire.ModePipelined:
		return fmt.Errorf("zcopy: §12: SinkAvail in mode %d", s.mode)
	case int(a.Len) <= buffer:
		return fmt.Errorf("zcopy: §9.5.1: SinkAvail of %d bytes, private buffers have %d", a.Len, buffer)
	case int32(a.NonDiscards-s.potential) > 0:
		return fmt.Errorf("zcopy: §9.5.1: SinkAvail with NonDiscards %d, at most %d possible", a.NonDiscards, s.potential)
	}
	if s.batch > 0 {
		s.later = append(s.later, a) // the peer's credit limits how many
	} else {
		s.admit(a)
	}
	if len(s.sinks) > s.fill {
		return fmt.Errorf("zcopy: §6.2.1: more than %d advertisements", s.fill)
	}
	return nil
}

// admit handles a SinkAvail while no payload is being posted.
func (s *Source) admit(a wire.Advert) {
	s.sinks = append(s.sinks, a)
	s.dropStale()
	if len(s.sinks) == 0 {
		return
	}
	// It overrides the SrcAvails that are outstanding, which the sink does not know or has
	// dropped (§11.3).
	for len(s.offers) > 0 {
		s.endOldest(false)
	}
}

// dropStale drops SinkAvails that messages with payload have used up at the sink (§9.5.1).
func (s *Source) dropStale() {
	for len(s.sinks) > 0 && s.sinks[0].NonDiscards != s.potential {
		s.sinks = append(s.sinks[:0], s.sinks[1:]...)
		s.potential--
	}
}

// SinkAvailCancel handles a SinkAvailCancel (§9.5.5).
func (s *Source) SinkAvailCancel() {
	if s.batch > 0 {
		if n := len(s.later); n == 0 || s.later[n-1].Len > 0 {
			s.later = append(s.later, wire.Advert{})
		}
		return
	}
	s.unwanted = s.filling
	s.dropStale()
	if len(s.sinks) > 0 {
		s.sinks, s.cancelAck = s.sinks[:0], true
	}
}

// ModeChange handles the sink's change of this Source's mode (S = 1, §12.2).
func (s *Source) ModeChange(to wire.Mode) error {
	if err := transition(s.mode, to, false); err != nil {
		return err
	}
	s.mode = to
	s.fails = 0
	s.counts.ModeChanges++
	return nil
}

// Acked notes that the peer has acknowledged our messages up to ack.
func (s *Source) Acked(ack uint32) {
	if s != nil && s.changing && int32(ack-s.changeSeq) >= 0 {
		s.changing = false
	}
}

// Hint handles the peer's request for Pipelined mode (REQ_PIPE).
func (s *Source) Hint() {
	if s.threshold < 0 {
		return
	}
	if s.hints++; s.hints >= hintsMatter && s.mode == wire.ModeCombined {
		s.change, s.next = true, wire.ModePipelined
	}
}

// inVain counts a SrcAvail of which nothing was fetched.
func (s *Source) inVain() {
	s.hints = 0
	if s.fails++; s.fails < failsMatter {
		return
	}
	s.fails = 0
	switch s.mode {
	case wire.ModePipelined:
		s.change, s.next = true, wire.ModeCombined
	case wire.ModeCombined:
		s.change, s.next = true, wire.ModeBuffered
	}
}

// mayAck reports whether a SinkCancelAck is due and may be sent. It tells the sink that none of
// its memory is in use, so the RDMA Writes under way and their RdmaWrCompl come first (§9.5.5).
func (s *Source) mayAck() bool { return s.cancelAck && !s.filling && !s.wrCompl }

// mayChange reports whether a ModeChange is due and may be sent: to Pipelined mode at any
// time, to another only when nothing is outstanding (§12.1, §12.4).
func (s *Source) mayChange() bool {
	return s.change && !s.changing &&
		(s.next == wire.ModePipelined || len(s.offers) == 0 && s.asked == 0 && !s.filling && !s.wrCompl)
}

// Pending reports whether Due has a message.
func (s *Source) Pending() bool {
	return s != nil && (s.wrCompl || s.cancel == cancelDue || s.mayAck() || s.mayChange())
}

// Due returns the message to send next, and the peer's STag to invalidate with it, or 0. It
// is not ok if none is due. The owner fills in the rest of the header, calls Took and sends
// it. No payload, SrcAvail or DisConn may be sent before it, because it says what happens to
// what was sent so far.
func (s *Source) Due() (m wire.Message, invalidate uint32, ok bool) {
	switch {
	case s.wrCompl:
		m.MID, m.Size = wire.MIDRdmaWrCompl, s.filled.Len
		return m, s.filled.STag, true
	case s.cancel == cancelDue:
		m.MID = wire.MIDSrcAvailCancel
	case s.mayAck():
		m.MID = wire.MIDSinkCancelAck
	case s.mayChange():
		m.MID, m.Mode = wire.MIDModeChange, s.next
	default:
		return m, 0, false
	}
	return m, 0, true
}

// Took notes that the message that Due returned has its MSeq and is about to be sent.
func (s *Source) Took(m *wire.Message) {
	switch m.MID {
	case wire.MIDRdmaWrCompl:
		s.wrCompl = false
	case wire.MIDSrcAvailCancel:
		if len(s.offers) == 0 {
			s.cancel = cancelNone // nothing is left for the peer to answer
			return
		}
		s.cancel, s.cancelSeq = cancelSent, m.MSeq
	case wire.MIDSinkCancelAck:
		s.cancelAck = false
	case wire.MIDModeChange:
		if s.mode == wire.ModePipelined {
			s.dropStale()
			s.sinks = s.sinks[:0]
			s.changing, s.changeSeq, s.atChange = true, m.MSeq, s.potential
		}
		s.mode, s.change = m.Mode, false
		s.hints, s.fails = 0, 0
		s.counts.ModeChanges++
	}
}

// Mode returns the direction's mode.
func (s *Source) Mode() wire.Mode { return s.mode }

// Counts returns what was done so far. SendSm counts those that were received.
func (s *Source) Counts() Counts { return s.counts }
