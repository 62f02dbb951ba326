package sdp

import (
	"fmt"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/session"
	"github.com/gosdp/gosdp/rdma"
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

// moves is what the connection moves without a copy, beside what its Session knows of
// it. One whose end takes no part has none until the peer says something about it.
// Guarded by Conn.mu.
//
// Memory of the program's that a peer or the device may touch is pinned, and is
// given away by the call alone that has it: writeDirect, fetch and advertise
// return when nothing of it is exposed or in use any more. Where the peer does
// not help to get there, they end the connection, because Abort gets all back.
type moves struct {
	most int // RDMA Reads outstanding at most

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
	most := min(limits.ORD, int(s.local.ORD))
	if threshold <= 0 || most == 0 || limits.BufferedOnly || bubble.Inside() {
		return // in a bubble no time passes after which an advertisement is withdrawn
	}
	c.session.StartDirect(session.DirectConfig{
		Threshold:   threshold,
		PeerAdverts: int(s.peer.MaxAdverts),
		Worth:       max(threshold, leastFetch),
	})
	c.moves = newMoves(c)
	c.moves.most = most
}

func newMoves(c *conn) *moves {
	v := new(moves)
	v.overdue.conn, v.giveUpW.conn, v.giveUpR.conn = c, c, c
	return v
}

// inRead reports that a Read has given its memory away.
func (v *moves) inRead() bool { return v != nil && v.reading }

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
		c.session.ZSink.Fetched(int(wc.ID))
		c.due.Store(true)
	}
}

// refuseAdverts has the peer send what it advertises as Data, which nobody will
// read. Called with mu held.
func (c *conn) refuseAdverts() {
	if c.session.RefuseAdverts() {
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
