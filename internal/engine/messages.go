package engine

import (
	"io"
	"syscall"

	"github.com/gosdp/gosdp/internal/session"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/sdp/stats"
	"github.com/gosdp/gosdp/wire"
)

// completedLocked handles one completion.
func (c *Conn) completedLocked(wc *rdma.Completion) {
	if wc.Op != rdma.OpReceive {
		if c.zcopy != nil {
			c.zcopy.completedLocked(wc)
		}
		return
	}
	if c.health != healthy {
		wc.Buffer.Release()
		return
	}
	m, err := c.session.Receive(wc.Buffer.Bytes, wc.Buffer.Owner, uint32(wc.Invalidated), c.refusesLocked())
	if m.Valid {
		if m.Payload > 0 {
			c.traffic.BcopyReceived.Add(stats.Counts{Messages: 1, Bytes: uint64(m.Payload)})
		} else {
			c.traffic.ControlReceived++
		}
		c.carryOutLocked(&m)
	}
	if !m.Kept {
		c.closer.reset = c.closer.reset || m.Payload > 0
		wc.Buffer.Release()
		if m.Payload > 0 && err == nil && !c.phase.closed() {
			// As Linux resets a connection (tcp_rcv_state_process). What arrived before can be read.
			c.breakLocked(syscall.ECONNRESET, syscall.ECONNRESET)
			return
		}
	}
	if err != nil {
		c.violatedLocked(err)
		return
	}
	c.out.checkDueLocked()
}

// carryOutLocked does what a message requires beyond the Session.
func (c *Conn) carryOutLocked(m *session.Event) {
	switch {
	case m.MID == wire.MIDDisConn:
		c.ackDue = true
	case m.Reset:
		// It follows the end of what the peer sends. A kernel that has received a FIN reports a
		// reset to Writes alone, and as EPIPE.
		c.recvErr, c.sendErr, c.lost = io.EOF, syscall.EPIPE, true
		c.poll.wakeAllLocked() // a Write may wait for room
	case m.Resize != 0:
		c.promise.resize(m.Resize)
	}
}

// receiveEndedLocked notes that the device delivers nothing more because of err.
func (c *Conn) receiveEndedLocked(err error) {
	var violation bool
	c.recvErr, c.sendErr, violation = c.session.ChannelEnded(err, c.sendErr, c.qp.Limits().Outlives)
	if violation {
		c.health.fail()
	}
	c.lost = c.lost || isReset(err) && c.session.PeerEnded()
	c.poll.wakeAllLocked()
}

// refusesLocked reports whether payload that arrives now is dropped.
func (c *Conn) refusesLocked() bool { return c.phase.bothClosed() }

// violatedLocked ends the connection because the peer has broken a rule of SDP. What
// arrived before can still be read.
func (c *Conn) violatedLocked(err error) {
	if c.health != healthy {
		return
	}
	c.health.violate()
	c.breakLocked(err, err)
}

// breakLocked ends the connection at both ends. Reads and Writes of this one return these errors.
func (c *Conn) breakLocked(recvErr, sendErr error) {
	c.health.fail()
	c.recvErr, c.sendErr = recvErr, sendErr
	if c.session.Abort() {
		c.out.due.Store(true)
	} else {
		c.abortLocked()
	}
	c.poll.wakeAllLocked()
}

// abortLocked aborts the channel in a goroutine, because Abort may wait for the device's
// goroutine, which may wait for mu.
func (c *Conn) abortLocked() {
	if c.phase.closed() {
		return // Close ends the channel, and waits for no more workers
	}
	c.workers++
	go func() {
		c.qp.Abort()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.workerDoneLocked()
	}()
}
