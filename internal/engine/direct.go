package engine

import (
	"fmt"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

const (
	// takeUpTime is how long an advertisement stands if the peer fetches nothing of it.
	takeUpTime = 5 * time.Millisecond
	// answerTime is how long a call that must end waits for the peer to release its memory.
	answerTime = 500 * time.Millisecond
	// fetchPart is the maximum size of one RDMA Read. The source learns from the completion
	// that the transfer makes progress.
	fetchPart = 1 << 20
	// fillPart is the maximum size of one RDMA Write, and fillAhead how many may be under
	// way: a call that must end has to wait for these.
	fillPart  = 1 << 20
	fillAhead = 8
	// advertiseMost is how many bytes of a Read are advertised at most. The protocol's limit
	// is 2³¹ (§6.3.3).
	advertiseMost = 1 << 30
	// leastFetch is how many bytes are worth an RDMA Read of their own, however low the
	// threshold is.
	leastFetch = 64 << 10
)

// errUnanswered ends a connection whose peer does not release the memory of a call that is
// over.
var errUnanswered = fmt.Errorf("sdp: cancelled transfer: peer did not release memory within %v (§9.5.4): %w", answerTime, syscall.ECONNABORTED)

// zeroCopy carries out a Session's plans for zero copy: it registers memory, posts RDMA Reads
// and Writes, and watches the time that the peer takes. Guarded by Conn.mu.
//
// Memory of the program that the peer or the device may access is pinned. Only the call that
// has the memory exposes it: write, fetchReleasing and advertiseReleasing return when none of it
// is exposed or in use. If the peer does not help to get there in time, they abort the
// connection, which ends all access.
type zeroCopy struct {
	conn     *Conn
	mostRead int // RDMA Reads that may be outstanding

	reads   int    // RDMA Reads that were posted and have not completed
	writes  int    // RDMA Writes, likewise
	fetched int    // bytes that RDMA Reads have brought since fetchReleasing began
	reading bool   // a Read has exposed its memory
	fills   uint64 // advertisements of the peer that were filled

	takeUp      deadline // for the peer to fetch some of what a Write has advertised
	writeAnswer deadline // for the peer to release the memory of a Write that must end
	readAnswer  deadline // of a Read
}

func newZeroCopy(c *Conn, mostRead int) *zeroCopy {
	z := &zeroCopy{conn: c, mostRead: mostRead}
	z.takeUp.conn, z.writeAnswer.conn, z.readAnswer.conn = c, c, c
	return z
}

// inRead reports whether a Read has exposed its memory.
func (z *zeroCopy) inRead() bool { return z != nil && z.reading }

// completedLocked handles the completion of an RDMA Read or Write. The ID of an RDMA Read is
// its size.
func (z *zeroCopy) completedLocked(wc *rdma.Completion) {
	c := z.conn
	switch {
	case wc.Op == rdma.OpWrite:
		z.writes = max(0, z.writes-1)
		return
	case z.reads == 0:
		return // it was posted before abortToReclaimReleasing
	}
	z.reads--
	z.fetched += int(wc.ID)
	if c.health == healthy {
		c.session.Fetched(int(wc.ID))
		c.out.due.Store(true)
	}
}

// mayWaitLocked reports whether a call may go on waiting for the peer to release its memory.
// why is the reason why the call must end, or nil; it starts the clock, and stops it if
// there is none any more because a deadline was moved.
func (z *zeroCopy) mayWaitLocked(why error, answer *deadline) bool {
	switch {
	case why == nil && answer.at.IsZero():
	case why == nil:
		answer.set(time.Time{})
	case answer.expired:
		return false
	case answer.at.IsZero():
		answer.set(time.Now().Add(answerTime))
	}
	return true
}

// abortToReclaimReleasing aborts the connection, so that neither the device nor the peer can
// access the program's memory any more.
func (z *zeroCopy) abortToReclaimReleasing() {
	c := z.conn
	c.health.fail() // the device's memory is gone soon
	if c.recvErr == nil {
		c.recvErr = errUnanswered
		if c.sendErr == nil {
			c.sendErr = errUnanswered
		}
		c.poll.wakeAllLocked()
	}
	c.mu.Unlock()
	c.qp.Abort()
	c.mu.Lock()
}
