// Package credits is the flow control of §10 of draft-pinkerton-iwarp-sdp-01: how many messages
// may be sent without overrunning the private buffers that the peer has posted, and when the
// peer must be told that there are more.
//
// Programs use package sdp. This package can be imported only because of the layout of the module, and promises
// no compatibility.
package credits

import "fmt"

// Kind is the kind of a message in the rules of §10.5.
type Kind uint8

const (
	Update  Kind = iota // an empty Data message, which grants credit
	Bare                // any other message without payload
	Payload             // a message with payload
)

const (
	// reserved credits are never spent on payload: one is for a message that grants credit,
	// and one for any message without payload (§10.5).
	reserved = 2
	// spare is additional credit that is not spent on payload (ours), if the peer began with
	// at least roomy buffers. When both programs have stopped reading, messages without payload
	// have only the buffers that payload did not use. If there were two, one such message would
	// leave one, which requires an update, which leaves one at the other end, and so on forever.
	spare = 1
	// roomy is the smallest number of buffers of which two can be granted again when payload
	// leaves reserved and spare: see MustUpdate.
	roomy = reserved + spare + 2
)

// Account keeps both halves of one connection's credit: what this end may send, and what the
// peer may send.
//
// Messages are sent in batches. Next(0) opens a batch and fixes the Bufs and MSeqAck that all
// of its messages carry, Next(1) and so on stamp the others, and Sent closes the batch with the
// number of messages that were sent. The owner may release its lock in between: Received and
// Post do not change what the batch was stamped with, nor what Sent records. Messages of the
// batch may be acknowledged before Sent, or answered by a peer that has used the credit which
// they granted. Until Sent they count as sent for Credit, May and Room, but not for PeerCredit,
// Gain and MustUpdate, which must be called while no batch is open.
//
// Hello and HelloAck have MSeq 0, and the first message has 1. (Ours: the draft starts at 0.
// An MSeqAck of 0 would then mean both "nothing yet" and "the first", and credit would be one
// too high.) All sequence numbers are modulo 2³².
//
// An Account allocates nothing but errors. It is not safe for concurrent use.
type Account struct {
	// What we may send.
	sent  uint32 // MSeq of the last message of ours that is known to be sent
	batch uint32 // messages stamped in the open batch, 0 if none is open
	acked uint32 // MSeq of the last message of ours that the peer has acknowledged
	bufs  uint16 // posted at the peer after that one
	keep  uint16 // credits that are not spent on payload

	// What the peer may send.
	received uint32 // MSeq of the last message of the peer
	posted   uint16 // our posted buffers
	told     window // in the last message that was sent
	stamped  window // in the open batch, or the last one
	limit    uint32 // highest MSeq that any stamp has allowed the peer
	held     bool   // no stamp may acknowledge hold or a later message
	hold     uint32
}

// window is what one header tells the peer about our buffers.
type window struct {
	ack  uint32
	bufs uint16
}

// end returns the MSeq of the last message for which the window has a buffer.
func (w window) end() uint32 { return w.ack + uint32(w.bufs) }

// New returns the Account of a connection after Hello and HelloAck. peerBufs is the number of
// private buffers that the peer has announced, and posted the number that this end has. Each is
// at least wire.MinBufs. A pool that begins with five or more must keep five.
func New(peerBufs, posted uint16) Account {
	w := window{bufs: posted}
	a := Account{bufs: peerBufs, keep: reserved, posted: posted, told: w, stamped: w, limit: w.end()}
	if peerBufs >= roomy {
		a.keep += spare
	}
	return a
}

// Credit returns the number of messages for which the peer has buffers (§10.2). It is never below
// 0, although a peer may acknowledge less than it has received (§9.5.4), so that its Bufs may
// cover less than was sent.
func (a *Account) Credit() int {
	// Signed, because messages of the open batch may be acknowledged already.
	unacked := int(int32(a.sent + a.batch - a.acked))
	return max(0, int(a.bufs)-unacked)
}

// May reports whether a message of kind k may be sent now (§10.5). Ours: payload needs four
// credits, not three, unless the peer has few buffers.
func (a *Account) May(k Kind) bool {
	// An open batch grants everything that there is to grant, and a further message nothing.
	gives := a.batch == 0 && a.Gain() > 0
	switch c := a.Credit(); k {
	case Update:
		return c >= 1 && gives
	case Bare:
		return c >= 2 || c == 1 && gives
	default:
		return c > int(a.keep)
	}
}

// Room returns how many messages with payload may be sent now.
func (a *Account) Room() int { return max(0, a.Credit()-int(a.keep)) }

// Next returns the header fields of the i-th message of a batch, counted from 0. Next(0) opens
// the batch. A batch that was open is forgotten, and none of it may have been sent.
func (a *Account) Next(i uint32) (mseq, ack uint32, bufs uint16) {
	if i == 0 {
		a.batch = 0
		a.stamped = a.window()
		if end := a.stamped.end(); int32(end-a.limit) > 0 {
			a.limit = end
		}
	}
	a.batch = max(a.batch, i+1)
	return a.sent + 1 + i, a.stamped.ack, a.stamped.bufs
}

// window returns what a header would tell the peer now. An acknowledgement that is held back
// does not change how far the peer's credit reaches.
func (a *Account) window() window {
	w := window{ack: a.received, bufs: a.posted}
	if a.held {
		behind := w.ack - (a.hold - 1)
		w.ack = a.hold - 1
		w.bufs = uint16(min(uint32(w.bufs)+behind, uint32(^uint16(0))))
	}
	return w
}

// Hold prevents messages from acknowledging the peer's message mseq, which has just been
// received, or a later one, until Release (§9.5.4).
func (a *Account) Hold(mseq uint32) { a.held, a.hold = true, mseq }

// Release ends Hold.
func (a *Account) Release() { a.held = false }

// Sent closes the open batch: its first n messages were sent. The others were not, and will be
// stamped again. It panics if fewer than n were stamped.
func (a *Account) Sent(n int) {
	if n < 0 || uint32(n) > a.batch {
		panic(fmt.Sprintf("credits: %d messages sent of %d", n, a.batch))
	}
	a.batch = 0
	if n > 0 {
		a.sent += uint32(n)
		a.told = a.stamped
	}
}

// Received handles the header of a message from the peer, which has used up one posted buffer.
// It returns an *Error if the peer has broken a rule: an MSeq that is not the next, a message
// without credit, or an MSeqAck that goes back or is of a message that was not sent. In that
// case the Account does not change.
func (a *Account) Received(mseq, ack uint32, bufs uint16) error {
	if want := a.received + 1; mseq != want {
		return &Error{"MSeq", fmt.Sprintf("is %d, expected %d", mseq, want)}
	}
	if int32(mseq-a.limit) > 0 {
		return &Error{"MSeq", fmt.Sprintf("is %d, beyond the credit limit %d", mseq, a.limit)}
	}
	last := a.sent + a.batch
	if ack-a.acked > last-a.acked {
		if int32(ack-a.acked) < 0 {
			return &Error{"MSeqAck", fmt.Sprintf("is %d, less than the previous %d", ack, a.acked)}
		}
		return &Error{"MSeqAck", fmt.Sprintf("is %d, beyond the last message sent, %d", ack, last)}
	}
	a.received = mseq
	a.posted--
	a.acked, a.bufs = ack, bufs
	return nil
}

// Post notes that n more buffers were posted. It panics if n is negative or more than 65535 are
// posted then (§6.1.3). A pool shrinks by not posting buffers again that were used. A posted
// buffer cannot be withdrawn, because the peer may have spent the credit for it.
func (a *Account) Post(n int) {
	if n < 0 || n > int(^uint16(0)-a.posted) {
		panic(fmt.Sprintf("credits: posting %d buffers to %d", n, a.posted))
	}
	a.posted += uint16(n)
}

// PeerCredit returns how many messages the peer may still send: what the last message that was
// sent told it, minus the messages that have arrived since. The peer counts fewer while its own
// messages are on their way.
func (a *Account) PeerCredit() int { return int(int32(a.told.end() - a.received)) }

// Gain returns by how much a message sent now would raise PeerCredit.
func (a *Account) Gain() int { return int(a.posted) - a.PeerCredit() }

// MustUpdate reports whether the peer must be granted more credit immediately, by any message
// that May allows, or an empty Data message if there is no other: it has at most one credit,
// and there is more to grant (§10.5).
//
// Ours: also if it has two or three, with which it sends no payload, and which the draft does
// not cover. In that case there must be two to grant: granting costs one, and two ends could
// otherwise grant each other one forever.
func (a *Account) MustUpdate() bool {
	credit, gain := a.PeerCredit(), a.Gain()
	return credit < reserved && gain > 0 || credit <= reserved+spare && gain > 1
}

// Error is a peer's violation of the credit rules. It ends the connection.
type Error struct {
	Field string // of the header: MSeq or MSeqAck
	What  string // what is wrong with it
}

// Error returns "credits: MSeq: is 7, expected 6".
func (e *Error) Error() string { return "credits: " + e.Field + ": " + e.What }
