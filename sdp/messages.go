package sdp

import (
	"errors"
	"io"
	"math"
	"syscall"

	"github.com/gosdp/gosdp/bcopy"
	"github.com/gosdp/gosdp/internal/session"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// take handles one completion. Called with mu held.
func (c *conn) take(wc *rdma.Completion) {
	if wc.Op != rdma.OpReceive {
		c.moved(wc)
		return
	}
	if c.failed {
		wc.Buffer.Release()
		return
	}
	m, err := c.session.Receive(wc.Buffer.Bytes, wc.Buffer.Owner, uint32(wc.Invalidated), c.readClosed || c.closed)
	if m.Valid {
		if m.Payload > 0 {
			c.traffic.BcopyReceived.add(Counts{1, uint64(m.Payload)})
		} else {
			c.traffic.ControlReceived++
		}
		c.carryOut(&m)
	}
	if !m.Kept {
		c.discarded = c.discarded || m.Payload > 0
		wc.Buffer.Release()
		c.session.Account.Post(1)
	}
	if err != nil {
		c.violated(err)
		return
	}
	c.lookDue()
}

// carryOut does what a message means beyond the Session.
func (c *conn) carryOut(m *session.Event) {
	switch {
	case m.MID == wire.MIDDisConn:
		c.ackNow()
	case m.MID == wire.MIDAbortConn && c.session.Sink.Ended():
		c.recvErr, c.sendErr = syscall.ECONNRESET, syscall.ECONNRESET
	case m.Resize != 0:
		old := c.qp.ProvideReceive(recvBuffers+int(c.promise.ahead), c.session.Sink.Resize(c.promise.granted(m.Resize)))
		if old > 0 {
			old += int(c.behind) // in buffers that are not posted any more
		}
		c.session.Sink.Older(old)
		c.promise.aim()
	case c.session.ZSource != nil && c.moves == nil: // the peer is the first to use zero copy
		c.noAppends()
		c.moves = newMoves(c)
	}
}

// release gives the private buffer of a payload that was read back to the device,
// and to the peer as credit, unless there are more buffers than there shall be.
// The buffer of a message without payload is always posted again: the reserved
// credits stand for it.
func (c *conn) release(owner bcopy.Owner) {
	owner.Release()
	if c.promise.ahead > 0 {
		c.promise.ahead--
		c.provide()
	} else {
		c.promise.held++
		c.promise.repost()
	}
	c.promise.account()
}

// relieve frees private buffers that hold little each, when many are held
// because the program does not read.
func (c *conn) relieve() {
	if c.session.Sink.Crowded(c.session.Target/2) && c.session.Sink.Bytes() < gatherLimit {
		c.session.Sink.Gather(c.release)
		c.promise.account()
		c.lookDue()
	}
}

// gatherLimit is how many bytes a program may leave unread before small messages
// are no longer made smaller: its peer is to wait then.
const gatherLimit = 1 << 20

// readAhead gives the peer more buffers when it waits for this program to read,
// while this program waits for it: two programs that write much before they read
// would wait for each other for ever. It stops at twice the window. Called with mu
// held, when nothing has moved for a tick.
func (c *conn) readAhead() {
	size := c.session.Sink.Size()
	more := min(aheadBuffers, (2*int(c.promise.window)-c.session.Sink.Bytes())/size)
	posted := c.session.Account.PeerCredit() + c.session.Account.Gain()
	if !c.starved || c.recvErr != nil || posted > stuckCredit || c.promise.ahead >= aheadMost {
		return
	}
	for more > 0 && !c.promise.affords(more*size) {
		more /= 2
	}
	if most := c.qp.Limits().Buffers; most > 0 {
		more = min(more, most-recvBuffers-int(c.promise.ahead))
	}
	defer c.promise.account()
	if more <= 0 {
		return
	}
	c.promise.ahead += int32(more)
	if !c.provide() {
		c.promise.ahead -= int32(more)
		return
	}
	c.session.Account.Post(more)
	c.due.Store(true)
}

// provide has the device post the private buffers that there are to be, and reports
// that it can. How many of another size are posted before them does not change.
// Called with mu held.
func (c *conn) provide() bool {
	return c.qp.ProvideReceive(recvBuffers+int(c.promise.ahead), c.session.Sink.Size()) != math.MaxInt32
}

const (
	aheadBuffers = 64   // posted at once by readAhead
	aheadMost    = 1024 // and in all, whatever little each of them holds
	stuckCredit  = 4    // with so much a peer may not send payload, or one message of it
)

// recvEnded takes in that the device delivers no more. Called with mu held.
func (c *conn) recvEnded(err error) {
	c.recvErr = err
	c.noAppends()
	var violation *rdma.ProtocolError
	var terminated *rdma.TerminateError
	switch {
	case errors.As(err, &violation), errors.As(err, &terminated):
		c.failed, c.sendErr = true, err
	case c.session.Sink.Ended():
		// A channel that ends behind a DisConn ended well, however it did (§8.2.1).
		// No credit comes any more, nor is there anybody to send to.
		c.recvErr = io.EOF
		if c.sendErr == nil {
			c.sendErr = syscall.EPIPE
		}
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		if c.sendErr == nil {
			c.sendErr = c.recvErr
		}
	case c.qp.Limits().Outlives:
		// The peer's process has ended. What its Writes had accepted has arrived; a
		// message that is not whole, or an advertisement that was not fetched, is of a
		// Write that has not returned. TCP calls that an end.
		// But a kernel reports a reset once, and an end from then on.
		c.recvErr = io.EOF
		if errors.Is(c.sendErr, syscall.ECONNRESET) {
			c.recvErr = syscall.ECONNRESET
		}
		if c.sendErr == nil {
			c.sendErr = syscall.EPIPE
		}
	default:
		// Bytes may be missing, so it counts as reset (§8.2.2).
		c.recvErr = syscall.ECONNRESET
		if c.sendErr == nil {
			c.sendErr = c.recvErr
		}
	}
	c.wakeAll()
}

// violated ends the connection because the peer has broken a rule of SDP. What
// has come before is still there to be read. Called with mu held.
func (c *conn) violated(err error) {
	if c.failed {
		return
	}
	c.failed = true
	c.noAppends()
	c.recvErr, c.sendErr = err, err
	if c.session.Abort() {
		c.due.Store(true)
	} else {
		c.abort()
	}
	c.wakeAll()
}

// abort drops the channel, behind an AbortConn if there was one to send. Called
// with mu held; the device's goroutine is not waited for under it.
func (c *conn) abort() {
	if c.closed {
		return // Close does, and waits for no more workers
	}
	c.workers.Go(func() { c.qp.Abort() })
}
