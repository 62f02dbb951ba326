package sdp

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/rdma"
)

const (
	// closeTime is how long Close waits for bytes that are still in this process.
	closeTime = time.Second
	// graceTime is how long Close waits for a peer on this host to have everything. A
	// peer that is not busy has, and then nothing is left for the background: a program
	// that counts its descriptors after Close finds none.
	graceTime = 100 * time.Microsecond
	// drainAlone is how long Drain runs before an attendant reads meanwhile.
	drainAlone = 5 * time.Millisecond
)

func (c *conn) CloseRead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("close", errClosed)
	}
	c.readClosed = true
	c.refuseAdverts()
	c.wakeAll()
	c.giveBackUnlessRead()
	return nil
}

// giveBackUnlessRead is giveBack, unless a Read is in progress, which does it at its end.
// Called with mu held.
func (c *conn) giveBackUnlessRead() {
	if c.readMu.TryLock() {
		c.giveBack()
		c.readMu.Unlock()
	}
}

// giveBack drops what is unread after CloseRead: nobody will read it, and the peer
// needs its buffers. Called with readMu and mu held.
func (c *conn) giveBack() {
	if !c.readClosed {
		return
	}
	for head := c.session.Sink.Head(); head != nil; head = c.session.Sink.Head() {
		c.discarded = true
		c.consume(len(head))
	}
	c.lookDue()
}

func (c *conn) CloseWrite() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.opError("close", errClosed)
	}
	c.writeClosed = true
	c.noAppends()
	c.wakeAll()
	c.mu.Unlock()
	c.writeMu.Lock() // a Write in progress has been told
	defer c.writeMu.Unlock()
	c.mu.Lock()
	err := c.sendErr
	if c.recvErr == io.EOF {
		err = nil // the peer has closed, which is no reason not to
	}
	c.endWrites()
	c.mu.Unlock()
	c.control()
	return c.opError("close", err)
}

// endWrites makes the DisConn due. Called with writeMu and mu held.
func (c *conn) endWrites() {
	if c.writeClosed && c.sendErr == nil && c.session.EndWrites() {
		c.due.Store(true)
	}
}

// Close ends the connection in these steps:
//
//  1. It marks the connection closed and wakes every call, each of which returns
//     net.ErrClosed.
//  2. It waits for the Write and the poller to leave, and takes in what has arrived.
//     With unread payload the connection is reset, as TCP's is, and that is all.
//  3. It sends the DisConn.
//  4. When nothing that was sent can be lost any more it ends the channel (conclude).
//     It looks for that for a moment. If that was not long enough, the connection is
//     left to the background (linger.go).
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.opError("close", errClosed)
	}
	c.closed = true
	c.noAppends()
	c.refuseAdverts()
	c.read.stop()
	c.write.stop()
	c.unwatch()
	c.discarded = c.discarded || c.session.Sink.Bytes() > 0
	c.giveUp = c.linger == 0
	c.wakeAll()
	c.mu.Unlock()

	c.writeMu.Lock()
	c.mu.Lock()
	for c.polling || c.moves.inRead() {
		c.sit()
	}
	c.stepping = true // nobody else does, before this call leaves it to the background
	over, reset := c.closeStep()
	wait := c.closeWait()
	c.mu.Unlock()
	c.writeMu.Unlock()

	switch {
	case over:
	case wait == graceTime:
		over, reset = c.grace()
	case wait > 0:
		over, reset = c.awaitClosed(wait)
	}
	if over {
		c.conclude(reset)
	} else {
		c.lingerOn()
	}
	return nil
}

// closeWait returns how long Close waits itself. Called with mu held.
func (c *conn) closeWait() time.Duration {
	_, asks := c.qp.(rdma.Finisher)
	switch {
	case c.linger > 0:
		return time.Duration(c.linger) * time.Second
	case !asks, bubble.Inside():
		// What this process still has goes with it; and in a bubble nothing may
		// outlive the test.
		return closeTime
	case handshake.OnThisHost(c.tcp):
		return graceTime
	}
	return 0
}

// closeStep does what there is to do for a closed connection now, without waiting,
// and reports whether the channel can be ended, and whether by a reset. Called with
// mu held and stepping set; lets go of mu meanwhile.
func (c *conn) closeStep() (over, reset bool) {
	c.drainPolled() // credit for a DisConn, and whatever else the peer has to say
	if !c.discarded && !c.giveUp && !c.session.WritesEnded() {
		c.writeClosed = true
		c.endWrites()
	}
	if over, reset = c.ended(); over {
		return over, reset
	}
	c.due.Store(true)
	c.mu.Unlock()
	c.control()
	c.qp.Flush()
	c.mu.Lock()
	finisher, asks := c.qp.(rdma.Finisher)
	if asks && c.session.SaidEnd() && finisher.Finish() {
		// What has arrived and is not taken in makes a kernel reset the connection
		// when it is closed: right for payload, wrong for the protocol's messages.
		c.drainPolled()
		if over, reset = c.ended(); !over {
			over = true
		}
	}
	return over, reset
}

// ended reports that there is nothing left to wait for, and whether the peer is to
// see a reset. Called with mu held.
func (c *conn) ended() (over, reset bool) {
	switch {
	case c.recvErr == io.EOF:
		return true, false // there is nobody left to be told of a reset
	case c.giveUp, c.discarded, c.sendErr != nil:
		return true, true
	}
	return c.recvErr != nil, c.recvErr != nil
}

// grace is closeStep once more after graceTime, if that is of use.
func (c *conn) grace() (over, reset bool) {
	sleepReally(graceTime)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session.SaidEnd() && !c.qp.(rdma.Finisher).Finish() {
		return false, false
	}
	return c.closeStep()
}

// awaitClosed repeats closeStep for d, by the real clock, or has the device wait.
func (c *conn) awaitClosed(d time.Duration) (over, reset bool) {
	if _, asks := c.qp.(rdma.Finisher); !asks {
		return c.drain(d)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for pause := 50 * time.Microsecond; d > 0 && !over; pause = min(3*pause, 10*time.Millisecond) {
		pause = min(pause, d)
		c.mu.Unlock()
		sleepReally(pause)
		c.mu.Lock()
		d -= pause
		over, reset = c.closeStep()
	}
	return over, reset
}

// drain is closeStep with a device that cannot be asked, but waits: for d at most.
func (c *conn) drain(d time.Duration) (over, reset bool) {
	until := clock() + d
	c.mu.Lock()
	defer c.mu.Unlock()
	timer := time.AfterFunc(d, func() {
		c.mu.Lock()
		c.late = true
		c.wakeAll()
		c.mu.Unlock()
	})
	defer timer.Stop()
	c.late = false
	for !c.session.SaidEnd() {
		if over, reset = c.ended(); over || c.late {
			return over, reset
		}
		c.due.Store(true)
		c.mu.Unlock()
		c.control()
		c.mu.Lock()
		if !c.session.SaidEnd() && !c.late {
			c.await()
		}
	}
	c.draining = true
	c.mu.Unlock()
	// The peer may be waiting for us to read, as we are for it.
	attend := time.AfterFunc(drainAlone, func() {
		c.mu.Lock()
		c.attend()
		c.mu.Unlock()
	})
	err := c.qp.Drain(until - clock())
	attend.Stop()
	c.mu.Lock()
	c.draining = false
	c.wakeAll()
	for c.attending || c.polling {
		c.sit()
	}
	c.drainPolled()
	if over, reset = c.ended(); over {
		return over, reset
	}
	switch {
	case err == nil:
		return true, false
	case errors.Is(err, os.ErrDeadlineExceeded):
		return false, false
	}
	return true, true
}

// conclude ends the channel. stepping is set, and stays so.
func (c *conn) conclude(reset bool) {
	c.mu.Lock()
	if reset && c.session.Abort() {
		c.due.Store(true)
	}
	c.mu.Unlock()
	c.control() // the AbortConn
	if reset {
		c.qp.Abort()
	} else {
		c.qp.Close()
	}
	c.uncount()
	c.workers.Wait()
	c.tcp.Close()
	if c.under != nil {
		c.under.end()
	}
}
