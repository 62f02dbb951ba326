package sdp

import (
	"github.com/gosdp/gosdp/credits"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// controlDue reports that a message of the protocol's own should go. Called with
// mu held.
func (c *conn) controlDue() bool {
	_, ack := c.sink.Ack()
	_, request := c.source.Request()
	return c.update || c.fin == finDue || c.abortDue || ack || request || c.zsource.Pending() || c.zsink.Pending() || c.creditDue()
}

// creditDue reports that the peer should be told of more buffers at once: it
// needs them (§10.5), or so many are free that it will before long. Everything
// less rides on what is sent anyway.
func (c *conn) creditDue() bool {
	return c.acct.MustUpdate() || c.acct.Gain() >= c.target/2
}

// control sends the messages of the protocol's own that are due, as far as
// credit goes. If somebody is sending, it leaves them to it: who lets go of
// sendMu calls control when due is set.
func (c *conn) control() {
	for c.due.Load() && c.sendMu.TryLock() {
		c.sendControl()
		c.sendMu.Unlock()
	}
}

// unlockSend lets go of sendMu.
func (c *conn) unlockSend() {
	c.sendMu.Unlock()
	if c.due.Load() {
		c.control()
	}
}

// sendControl sends what is due, one message after the other. Called with
// sendMu held.
func (c *conn) sendControl() {
	o := newOutgoing()
	defer o.free()
	for {
		c.mu.Lock()
		c.due.Store(false)
		m, invalidate, ok := c.nextControl()
		if !ok || c.sendErr != nil && m.MID != wire.MIDAbortConn {
			c.dropAbort()
			c.mu.Unlock()
			return
		}
		o.reset()
		o.add(c, &m)
		o.wrs[0].Invalidate = invalidate
		c.controlTaken(&m)
		c.mu.Unlock()

		n, err := c.qp.PostSend(o.wrs)
		c.mu.Lock()
		c.acct.Sent(n)
		if n == 1 {
			c.traffic.ControlSent++
			c.controlSent(m.MID)
		} else {
			// ErrNoRoom cannot come: the device has room for more control messages
			// than credit allows.
			c.sendFailed(err)
			c.dropAbort()
		}
		c.mu.Unlock()
		if n != 1 {
			return
		}
		if c.qp.Busy() {
			c.qp.Flush()
		}
	}
}

// nextControl returns the message that is to go next; not ok if none is due, or
// credit forbids it. Called with mu held.
func (c *conn) nextControl() (m wire.Message, invalidate rdma.STag, ok bool) {
	bare := c.acct.May(credits.Bare)
	size, ack := c.sink.Ack()
	want, request := c.source.Request()
	held := c.ackHeld()
	switch {
	case bare && c.abortDue:
		m.MID = wire.MIDAbortConn
	case bare && (c.zsource.Pending() || c.zsink.Pending()):
		m, invalidate = c.nextAdvert()
	case bare && ack:
		m.MID, m.Size = wire.MIDChRcvBufAck, uint32(size)
	case bare && request && !held:
		// What crosses a ChRcvBuf is told by MSeqAck, which says too little while it
		// is held back.
		m.MID, m.Size = wire.MIDChRcvBuf, uint32(want)
	case bare && c.fin == finDue:
		m.MID = wire.MIDDisConn
	case bare && c.update, c.creditDue() && c.acct.May(credits.Update):
		m.MID = wire.MIDData
	default:
		return m, 0, false
	}
	return m, invalidate, true
}

// controlTaken accounts for a message of nextControl's that is about to go; its
// answer may come before PostSend has returned. Called with mu held.
func (c *conn) controlTaken(m *wire.Message) {
	switch m.MID {
	case wire.MIDChRcvBufAck:
		c.sink.Acked()
		c.zsink.Resized(int(m.Size))
	case wire.MIDChRcvBuf:
		c.source.Requested(m.MSeq)
	case wire.MIDDisConn:
		c.fin = finGoing
	case wire.MIDData:
		c.update = false
	case wire.MIDRdmaWrCompl, wire.MIDSrcAvailCancel, wire.MIDSinkCancelAck:
		c.zsource.Took(m)
	case wire.MIDRdmaRdCompl, wire.MIDSendSm, wire.MIDSinkAvailCancel, wire.MIDSinkAvail:
		c.zsink.Took(m)
	case wire.MIDModeChange:
		if m.ModeOfSend { // it is the mode in which the peer sends
			c.zsink.Took(m)
		} else {
			c.zsource.Took(m)
		}
	}
}

// controlSent accounts for a message that has gone. Called with mu held.
func (c *conn) controlSent(m wire.MID) {
	switch m {
	case wire.MIDDisConn:
		c.fin = finSent
		c.wakeAll() // who waits for it may be polling
	case wire.MIDAbortConn:
		c.dropAbort()
	}
}

// dropAbort drops the channel if an AbortConn was due: it has gone, or cannot.
// Called with mu held.
func (c *conn) dropAbort() {
	if c.abortDue {
		c.abortDue = false
		c.abort()
	}
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
