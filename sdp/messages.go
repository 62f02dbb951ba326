package sdp

import (
	"errors"
	"fmt"
	"io"
	"math"
	"syscall"

	"github.com/gosdp/gosdp/bcopy"
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
	var m wire.Message
	parse := m.Parse
	if c.appender != nil {
		parse = m.ParseGrown
	}
	kept, err := false, parse(wc.Buffer.Bytes)
	if err == nil {
		err = c.acct.Received(m.MSeq, m.MSeqAck, m.Bufs)
	}
	if err == nil && wc.Invalidated != 0 && m.MID != wire.MIDRdmaRdCompl && m.MID != wire.MIDRdmaWrCompl {
		err = fmt.Errorf("sdp: §9.2: %v invalidates STag %#x, which was not advertised", m.MID, wc.Invalidated)
	}
	if err == nil {
		if n := len(m.Payload); n > 0 {
			c.traffic.BcopyReceived.add(Counts{1, uint64(n)})
		} else {
			c.traffic.ControlReceived++
		}
		c.sink.Used()
		c.zsource.Acked(m.MSeqAck)
		kept, err = c.dispatch(&m, wc)
	}
	if !kept {
		wc.Buffer.Release()
		c.acct.Post(1)
	}
	if err != nil {
		c.violated(err)
		return
	}
	if c.controlDue() {
		c.due.Store(true)
	}
}

// dispatch carries one message out, and reports whether its buffer is kept.
func (c *conn) dispatch(m *wire.Message, wc *rdma.Completion) (kept bool, err error) {
	if c.sink.Ended() && len(m.Payload) > 0 {
		return false, fmt.Errorf("sdp: §8.2.1: %v with payload after DisConn", m.MID)
	}
	if n := len(m.Payload); n > 0 && m.MID != wire.MIDSrcAvail && c.zsink.Bars(n) {
		return false, fmt.Errorf("sdp: §11.2: %v with payload behind a SrcAvail", m.MID)
	}
	switch m.MID {
	case wire.MIDData:
	case wire.MIDDisConn:
		if c.sink.Ended() {
			return false, errors.New("sdp: §8.2.1: a second DisConn")
		}
		err = c.zsink.End()
		c.sink.End()
		c.ackNow()
	case wire.MIDAbortConn:
		if !c.sink.Ended() {
			return false, errors.New("sdp: §8.2.2: AbortConn without DisConn")
		}
		c.recvErr, c.sendErr = syscall.ECONNRESET, syscall.ECONNRESET
	case wire.MIDChRcvBuf:
		if c.sink.Resizing() {
			return false, errors.New("sdp: §10.6: a ChRcvBuf before the one that is not acknowledged")
		}
		if c.source.Crossed(m.MSeqAck) {
			old := c.qp.ProvideReceive(recvBuffers+int(c.ahead), c.sink.Resize(c.granted(m.Size)))
			if old > 0 {
				old += int(c.behind) // in buffers that are not posted any more
			}
			c.sink.Older(old)
			c.aim()
		}
	case wire.MIDChRcvBufAck:
		err = c.source.Acked(m.Size)
	default:
		err = c.advertised(m, wc.Invalidated)
	}
	if err == nil && len(m.Payload) > 0 {
		c.zsink.Payload(len(m.Payload), m.MID != wire.MIDSrcAvail)
	}
	if err != nil || len(m.Payload) == 0 || c.readClosed || c.closed {
		c.discarded = c.discarded || len(m.Payload) > 0
		return false, err
	}
	c.sink.Add(m.Payload, wc.Buffer.Owner)
	return true, nil
}

// release gives the private buffer of a payload that was read back to the device,
// and to the peer as credit, unless there are more buffers than there shall be.
// The buffer of a message without payload is always posted again: the reserved
// credits stand for it.
func (c *conn) release(owner bcopy.Owner) {
	owner.Release()
	if c.ahead > 0 {
		c.ahead--
		c.provide()
	} else {
		c.held++
		c.repost()
	}
	c.account()
}

// relieve frees private buffers that hold little each, when many are held
// because the program does not read.
func (c *conn) relieve() {
	if c.sink.Crowded(c.target/2) && c.sink.Bytes() < gatherLimit {
		c.sink.Gather(c.release)
		c.account()
		if c.controlDue() {
			c.due.Store(true)
		}
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
	size := c.sink.Size()
	more := min(aheadBuffers, (2*int(c.window)-c.sink.Bytes())/size)
	posted := c.acct.PeerCredit() + c.acct.Gain()
	if !c.starved || c.recvErr != nil || posted > stuckCredit || c.ahead >= aheadMost {
		return
	}
	for more > 0 && !c.affords(more*size) {
		more /= 2
	}
	if most := c.qp.Limits().Buffers; most > 0 {
		more = min(more, most-recvBuffers-int(c.ahead))
	}
	defer c.account()
	if more <= 0 {
		return
	}
	c.ahead += int32(more)
	if !c.provide() {
		c.ahead -= int32(more)
		return
	}
	c.acct.Post(more)
	c.due.Store(true)
}

// provide has the device post the private buffers that there are to be, and reports
// that it can. How many of another size are posted before them does not change.
// Called with mu held.
func (c *conn) provide() bool {
	return c.qp.ProvideReceive(recvBuffers+int(c.ahead), c.sink.Size()) != math.MaxInt32
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
	case c.sink.Ended():
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
	if c.fin == finSent {
		c.abortDue = true
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
