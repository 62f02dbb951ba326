// Package credits is the arithmetic of §10 of draft-pinkerton-iwarp-sdp-01: how
// many messages may be sent without overrunning the private buffers that the
// peer has posted, and when the peer has to be told that there are more.
package credits

import "fmt"

// Kind is what a message is to the rules of §10.5.
type Kind uint8

const (
	Update  Kind = iota // an empty Data message, sent for the credit it gives
	Bare                // any other message without payload
	Payload             // a message with payload
)

const (
	// reserved credits are never spent on payload: one is for a message that
	// gives credit, one for any message without payload (§10.5).
	reserved = 2
	// spare is the credit that payload leaves over as well, ours, if the peer
	// began with roomy buffers or more. When both programs have stopped reading,
	// the buffers that payload has left over are all that there is for messages
	// without payload. Were they two, one such message would leave one, which
	// calls for an update, which leaves one at the other end, and so on for ever.
	spare = 1
	// roomy is the fewest buffers of which two can still be gained when payload
	// leaves reserved and spare over: see MustUpdate.
	roomy = reserved + spare + 2
)

// Account keeps both halves of one connection's credit: what we may send to the
// peer, and what it may send to us.
//
// Messages leave in batches. Next(0) opens one and latches the Bufs and MSeqAck
// that all of its messages carry, Next(1) and so on stamp the others, and Sent
// closes it with the number that really went. Whoever owns the account may give
// up its lock in between: Received and Post change neither what the open batch
// was stamped with nor what Sent then remembers, and messages of the batch may
// be acknowledged, or answered by a peer that has spent the credit they gave,
// before Sent tells that they went. Until then they count as sent against
// Credit, May and Room, and not yet as told for PeerCredit, Gain and MustUpdate,
// which are to be asked when no batch is open.
//
// MSeq 0 are Hello and HelloAck, and the first message is 1 (ours: the draft
// starts at 0, where an MSeqAck of 0 means both "nothing yet" and "the first",
// and credit comes out one too high). All sequence numbers are modulo 2³².
//
// It allocates nothing but errors. Unsafe for concurrent use.
type Account struct {
	// What we may send.
	sent  uint32 // MSeq of the last message of ours known to have gone
	batch uint32 // messages stamped in the open batch, 0 if none is open
	acked uint32 // MSeq of the last message of ours that the peer has acknowledged
	bufs  uint16 // posted at the peer behind that one
	keep  int    // credits that are not spent on payload

	// What the peer may send.
	received uint32 // MSeq of the last message of the peer
	posted   uint16 // our posted buffers
	told     window // from what has been sent
	stamped  window // from the open batch, or the last one
	limit    uint32 // highest MSeq that any stamp has allowed the peer
	held     bool   // no stamp acknowledges hold, or what follows it
	hold     uint32
}

// window is what one header tells the peer about our buffers.
type window struct {
	ack  uint32
	bufs uint16
}

// end returns the MSeq of the last message for which the window has a buffer.
func (w window) end() uint32 { return w.ack + uint32(w.bufs) }

// New returns the account of a connection after Hello and HelloAck: peerBufs
// from the peer's, posted from ours, in private buffers. §10.3 asks for three,
// but a stream flows without the peer's help from four on (see MustUpdate), and
// a pool that begins with five or more must keep five.
func New(peerBufs, posted uint16) Account {
	w := window{bufs: posted}
	a := Account{bufs: peerBufs, keep: reserved, posted: posted, told: w, stamped: w, limit: w.end()}
	if peerBufs >= roomy {
		a.keep += spare
	}
	return a
}

// Credit returns how many messages the peer has buffers for (§10.2). It is
// never below 0: a peer may acknowledge less than it has received (§9.5.4), so
// that its Bufs do not reach as far as what we have sent.
func (a *Account) Credit() int {
	// Signed, because messages of the open batch may be acknowledged already.
	unacked := int(int32(a.sent + a.batch - a.acked))
	return max(0, int(a.bufs)-unacked)
}

// May reports whether a message of this kind may be sent now (§10.5). Ours:
// payload needs four credits, not three, unless the peer has few buffers.
func (a *Account) May(k Kind) bool {
	// An open batch gives whatever there is to give, a further message nothing.
	gives := a.batch == 0 && a.Gain() > 0
	switch c := a.Credit(); k {
	case Update:
		return c >= 1 && gives
	case Bare:
		return c >= 2 || c == 1 && gives
	default:
		return c > a.keep
	}
}

// Room returns how many messages with payload may be sent now.
func (a *Account) Room() int { return max(0, a.Credit()-a.keep) }

// Next returns the header fields of the i-th message to be sent from now,
// counted from 0. Next(0) opens a batch; one that was open is forgotten, and
// none of it may have gone.
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

// window returns what a header would tell now. An acknowledgement that is held
// back changes nothing of how far the peer's credit reaches.
func (a *Account) window() window {
	w := window{ack: a.received, bufs: a.posted}
	if a.held {
		behind := w.ack - (a.hold - 1)
		w.ack = a.hold - 1
		w.bufs = uint16(min(uint32(w.bufs)+behind, uint32(^uint16(0))))
	}
	return w
}

// Hold has no message acknowledge the peer's message mseq, which has just been
// received, or a later one, until Release (§9.5.4).
func (a *Account) Hold(mseq uint32) { a.held, a.hold = true, mseq }

// Release ends Hold.
func (a *Account) Release() { a.held = false }

// Sent closes the open batch: its first n messages have gone, the others have
// not and will be stamped anew. It panics if n were not stamped.
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

// Received takes in the header of a message from the peer, which has used up
// one posted buffer. The peer's violation is an *Error: an MSeq that is not the
// next, more messages than it was given credit for, or an MSeqAck that goes
// back or is of a message not sent yet. The account is then unchanged.
func (a *Account) Received(mseq, ack uint32, bufs uint16) error {
	if want := a.received + 1; mseq != want {
		return &Error{"MSeq", fmt.Sprintf("is %d out of step, %d is next", mseq, want)}
	}
	if int32(mseq-a.limit) > 0 {
		return &Error{"MSeq", fmt.Sprintf("is %d without credit, which ends at %d", mseq, a.limit)}
	}
	last := a.sent + a.batch
	if ack-a.acked > last-a.acked {
		if int32(ack-a.acked) < 0 {
			return &Error{"MSeqAck", fmt.Sprintf("is %d, back from %d", ack, a.acked)}
		}
		return &Error{"MSeqAck", fmt.Sprintf("is %d, but only %d was sent", ack, last)}
	}
	a.received = mseq
	a.posted--
	a.acked, a.bufs = ack, bufs
	return nil
}

// Post takes in that n more buffers were posted. It panics if n is below 0 or
// there are more than 65535 then (§6.1.3). A pool shrinks by buffers that are
// used up and not posted again: a posted one cannot be withdrawn, because the
// peer may have spent the credit for it already.
func (a *Account) Post(n int) {
	if n < 0 || n > int(^uint16(0)-a.posted) {
		panic(fmt.Sprintf("credits: posting %d buffers to %d", n, a.posted))
	}
	a.posted += uint16(n)
}

// PeerCredit returns how many messages the peer may still send: what the last
// message that has gone told it, less the messages that have come since. The
// peer counts fewer while messages of its own are on their way.
func (a *Account) PeerCredit() int { return int(int32(a.told.end() - a.received)) }

// Gain returns by how much a message sent now would raise PeerCredit.
func (a *Account) Gain() int { return int(a.posted) - a.PeerCredit() }

// MustUpdate reports that the peer is to be given more credit at once, by
// whatever message May allows, an empty Data message if there is no other: it
// has one credit or fewer, and there is more to give (§10.5).
//
// Ours: also when it has two or three, which it does not send payload with, and
// for which the draft has no remedy. Only if there are two to give, however:
// giving costs one, and two ends could go on giving each other one for ever.
func (a *Account) MustUpdate() bool {
	credit, gain := a.PeerCredit(), a.Gain()
	return credit < reserved && gain > 0 || credit <= reserved+spare && gain > 1
}

// Error is a peer's violation of the rules of credit. It ends the connection.
type Error struct {
	Field string // of the header: MSeq or MSeqAck
	What  string // what is wrong with it
}

// Error returns "credits: MSeq: is 7 out of step, 6 is next".
func (e *Error) Error() string { return "credits: " + e.Field + ": " + e.What }
