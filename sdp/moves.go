package sdp

import (
	"fmt"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
	"github.com/gosdp/gosdp/zcopy"
)

const (
	// takeUpTime is how long an advertisement stands of which the peer fetches
	// nothing.
	takeUpTime = 5 * time.Millisecond
	// answerTime is how long a call that is to end waits for the peer's library to
	// let go of its memory.
	answerTime = 500 * time.Millisecond
	// fetchPart is how many bytes one RDMA Read fetches at most: the source learns
	// from its completion that the transfer makes headway.
	fetchPart = 1 << 20
	// fillPart is how many bytes one RDMA Write moves at most, and fillAhead how many
	// of them are under way: what a call that is to end has to wait for.
	fillPart  = 1 << 20
	fillAhead = 8
	// advertiseMost is how many bytes of a Read are advertised at most; the
	// protocol's limit is 2³¹ (§6.3.3).
	advertiseMost = 1 << 30
	// leastFetch is how many bytes are worth an RDMA Read of their own, however low
	// the threshold is.
	leastFetch = 64 << 10
)

// errUnanswered is what ends a connection whose peer holds on to the memory of a
// call that is over.
var errUnanswered = fmt.Errorf("sdp: §9.5.4: the peer has not let go of a cancelled transfer for %v: %w", answerTime, syscall.ECONNABORTED)

// direct is what a connection needs for zero copy. One whose end takes no part has
// none until the peer says something about it, which is then judged, and refused,
// like anybody's. Guarded by Conn.mu.
type direct struct {
	source zcopy.Source
	sink   zcopy.Sink
	moves  moves
}

// moves is what the connection moves without a copy, beside what zcopy knows of
// it. Guarded by Conn.mu.
//
// Memory of the program's that a peer or the device may touch is pinned, and is
// given away by the call alone that has it: writeDirect, fetch and advertise
// return when nothing of it is exposed or in use any more. Where the peer does
// not help to get there, they end the connection, because Abort gets all back.
type moves struct {
	most       int  // RDMA Reads outstanding at most
	invalidate bool // messages may invalidate the peer's regions

	reads   int    // RDMA Reads that were posted and have not completed
	writes  int    // likewise RDMA Writes
	fetched int    // bytes that RDMA Reads have brought since fetch began
	reading bool   // a Read has given its memory away
	fills   uint64 // advertisements of the peer's that were written into

	overdue deadline // of the SrcAvails outstanding to be taken up
	giveUpW deadline // of the peer to let go of a Write's memory
	giveUpR deadline // of a Read's
}

// initDirect prepares for zero copy, if the setup has agreed on it.
func (c *conn) initDirect(s *setup) {
	limits := c.qp.Limits()
	threshold := s.threshold
	if threshold == 0 {
		threshold = limits.Threshold
	}
	c.adverts = s.local.MaxAdverts
	most := min(limits.ORD, int(s.local.ORD))
	if threshold <= 0 || most == 0 || limits.BufferedOnly || bubble.Inside() {
		return // in a bubble no time passes after which an advertisement is withdrawn
	}
	c.makeDirect(threshold, int(s.peer.MaxAdverts))
	c.moves.most, c.moves.invalidate = most, limits.Invalidate
}

// makeDirect makes the state of zero copy, before anything of it has happened.
func (c *conn) makeDirect(threshold, peerAdverts int) {
	d := new(direct)
	d.source = zcopy.NewSource(zcopy.SourceConfig{
		Threshold:  threshold,
		PeerAdvert: peerAdverts,
		OurAdverts: int(c.adverts),
	})
	d.sink = zcopy.NewSink(zcopy.SinkConfig{
		Refuse:     threshold == zcopy.Never,
		OurAdverts: int(c.adverts),
		PeerAdvert: peerAdverts,
		Worth:      max(threshold, leastFetch),
	})
	d.moves.overdue.conn, d.moves.giveUpW.conn, d.moves.giveUpR.conn = c, c, c
	c.zsource, c.zsink, c.moves = &d.source, &d.sink, &d.moves
}

// refuseDirect makes it at an end that takes no part, when the peer's first message
// about it has come. Such an end advertises nothing, so the peer's limit is of no
// account, nor is how many messages with payload have gone either way before.
// Called with mu held.
func (c *conn) refuseDirect() {
	c.noAppends()
	c.makeDirect(zcopy.Never, 1)
	if c.sink.Ended() {
		c.zsink.End()
	}
}

// inRead reports that a Read has given its memory away.
func (v *moves) inRead() bool { return v != nil && v.reading }

// advertised takes in a message about advertisements.
func (c *conn) advertised(m *wire.Message, invalidated rdma.STag) error {
	if c.zsink == nil {
		c.refuseDirect()
	}
	switch m.MID {
	case wire.MIDSrcAvail:
		return c.zsink.SrcAvail(m.Advert, len(m.Payload))
	case wire.MIDSrcAvailCancel:
		err := c.zsink.SrcAvailCancel(m.MSeq)
		if seq, held := c.zsink.Held(); held {
			c.acct.Hold(seq)
		}
		return err
	case wire.MIDRdmaRdCompl:
		return c.zsource.RdCompl(int(m.Size), uint32(invalidated), m.Flags&wire.FlagReqPipe != 0)
	case wire.MIDSendSm:
		return c.zsource.SendSm(m.MSeqAck)
	case wire.MIDSinkAvail:
		return c.zsource.SinkAvail(m.Advert, m.MSeqAck, c.source.Size())
	case wire.MIDSinkAvailCancel:
		c.zsource.SinkAvailCancel()
		return nil
	case wire.MIDSinkCancelAck:
		return c.zsink.CancelAck()
	case wire.MIDRdmaWrCompl:
		if m.Flags&wire.FlagReqPipe != 0 {
			c.zsource.Hint()
		}
		return c.zsink.WrCompl(int(m.Size), uint32(invalidated))
	case wire.MIDModeChange:
		if m.ModeOfSend {
			return c.zsource.ModeChange(m.Mode)
		}
		return c.zsink.ModeChange(m.Mode)
	}
	return fmt.Errorf("sdp: §9: %v has no place here", m.MID)
}

// moved takes in the completion of an RDMA Read or Write; a Read's ID is how many
// bytes that was. Called with mu held.
func (c *conn) moved(wc *rdma.Completion) {
	v := c.moves
	switch {
	case wc.Op == rdma.OpWrite:
		v.writes = max(0, v.writes-1)
		return
	case v.reads == 0:
		return // of before getBack
	}
	v.reads--
	v.fetched += int(wc.ID)
	if !c.failed {
		c.zsink.Fetched(int(wc.ID))
		c.due.Store(true)
	}
}

// nextAdvert returns the message about advertisements that is to go next, and
// the peer's region to invalidate with it. Called with mu held, when one is due.
func (c *conn) nextAdvert() (m wire.Message, invalidate rdma.STag) {
	m, stag, ok := c.zsource.Due()
	if !ok {
		m, stag, _ = c.zsink.Due()
	} else if m.MID == wire.MIDRdmaWrCompl && c.zsink.WantsPipelined() {
		m.Flags = wire.FlagReqPipe
	}
	if !c.moves.invalidate {
		stag = 0
	}
	return m, rdma.STag(stag)
}

// ackHeld reports that a SrcAvailCancel is not acknowledged yet (§9.5.4), and
// ends that when it is time. Called with mu held, before a message is stamped.
func (c *conn) ackHeld() bool {
	_, held := c.zsink.Held()
	if !held {
		c.acct.Release()
	}
	return held
}

// payloadSent tells how many messages with payload, and bytes in them, have gone
// of those that were stamped. Called with mu held.
func (c *conn) payloadSent(messages, n int) {
	c.zsource.Sent(messages, n)
	if c.zsource.Pending() || c.zsink.Pending() {
		c.due.Store(true)
	}
}

// refuseAdverts has the peer send what it advertises as Data, which nobody will
// read. Called with mu held.
func (c *conn) refuseAdverts() {
	c.zsink.Refuse()
	if c.zsink.Pending() {
		c.due.Store(true)
	}
}

// say sends what is due, as far as credit goes, and waits for whoever is sending.
// Called and returns with mu held; lets go of it meanwhile.
func (c *conn) say() {
	c.mu.Unlock()
	c.sendMu.Lock()
	c.sendControl()
	c.unlockSend()
	c.mu.Lock()
}

// patient returns whether a call may go on waiting for the peer to let go of its
// memory. When there is a reason why it is to end, that starts the clock; when
// there is none any more, because its deadline was moved, that stops it. Called
// with mu held.
func (c *conn) patient(why error, d *deadline) bool {
	switch {
	case why == nil && d.at.IsZero():
	case why == nil:
		d.set(time.Time{})
	case d.expired:
		return false
	case d.at.IsZero():
		d.set(time.Now().Add(answerTime))
	}
	return true
}

// getBack ends the connection, so that the device and the peer let go of all
// memory, if it has not ended already. Called and returns with mu held; lets go
// of it meanwhile.
func (c *conn) getBack() {
	c.failed = true // the device's memory is gone soon
	if c.recvErr == nil {
		c.recvErr = errUnanswered
		if c.sendErr == nil {
			c.sendErr = errUnanswered
		}
		c.wakeAll()
	}
	c.mu.Unlock()
	c.qp.Abort()
	c.mu.Lock()
}
