package sdp

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

// closeTime is how long Close waits for what was written to leave this process.
const closeTime = time.Second

// kernelTime is how much longer it waits for the peer's kernel to have what ours
// still has: a message of the peer's that finds the socket gone would make ours
// drop it.
const kernelTime = 10 * time.Second

// drainAlone is how long Close drains before it has somebody read meanwhile.
const drainAlone = 5 * time.Millisecond

// CloseRead ends the direction towards us: Reads return io.EOF, and what comes
// is dropped.
func (c *Conn) CloseRead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("close", errClosed)
	}
	c.readClosed = true
	c.refuseAdverts()
	c.wakeAll()
	if c.readMu.TryLock() { // else who reads gives back what it has
		defer c.readMu.Unlock()
		c.giveBack()
	}
	return nil
}

// giveBack drops what is unread after CloseRead: nobody will read it, and the
// peer is to have its buffers. Called with readMu and mu held.
func (c *Conn) giveBack() {
	if !c.readClosed {
		return
	}
	for head := c.sink.Head(); head != nil; head = c.sink.Head() {
		c.discarded = true
		if owner := c.sink.Consume(len(head)); owner != nil {
			c.release(owner)
		}
	}
	if c.controlDue() {
		c.due.Store(true)
	}
}

// CloseWrite ends the direction towards the peer behind what was written: the
// peer's Reads return io.EOF then. It does not wait for any of that. A Write in
// progress fails with syscall.EPIPE.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.opError("close", errClosed)
	}
	c.writeClosed = true
	c.wakeAll()
	c.mu.Unlock()
	c.writeMu.Lock() // a Write in progress has been told
	defer c.writeMu.Unlock()
	c.mu.Lock()
	err := c.sendErr
	c.endWrites()
	c.mu.Unlock()
	c.control()
	return c.opError("close", err)
}

// endWrites makes the DisConn due if all data before it is through; the flusher
// does so later if not. Called with mu held.
func (c *Conn) endWrites() {
	if c.writeClosed && c.fin == finOpen && !c.small.flushing && !c.small.lost && c.sendErr == nil {
		c.fin = finDue
		c.due.Store(true)
	}
}

// finish sends the DisConn behind what the flusher has, unless it has been sent,
// and waits for it to be in the device. Called with writeMu and mu held; returns
// with them held.
func (c *Conn) finish() error {
	c.writeClosed = true
	for c.small.flushing && c.cannotFlush() == nil {
		c.limitClose()
		c.sit()
	}
	switch {
	case c.sendErr != nil || c.fin == finSent:
		return c.sendErr
	case c.small.flushing || c.small.lost:
		return os.ErrDeadlineExceeded // no DisConn in front of what was written
	}
	c.endWrites()
	for {
		c.due.Store(true)
		c.mu.Unlock()
		c.control()
		c.mu.Lock()
		switch {
		case c.fin == finSent:
			return nil
		case c.sendErr != nil:
			return c.sendErr
		case c.giveUp:
			return os.ErrDeadlineExceeded
		}
		c.limitClose()
		c.await()
	}
}

// Close ends the connection: every call in progress returns net.ErrClosed. It
// returns when all that was written is out of this process, after one second at
// most, or what SetLinger says; what is not by then is lost, and the peer sees a
// reset. It sees one too if something that it sent has not been read. On Linux it
// also waits, up to ten seconds more, for the peer's kernel to have it all.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.opError("close", errClosed)
	}
	c.closed = true
	c.refuseAdverts()
	c.read.stop()
	c.write.stop()
	c.discarded = c.discarded || c.sink.Bytes() > 0
	wait := closeTime
	if c.linger >= 0 {
		wait = time.Duration(c.linger) * time.Second
		c.giveUp = wait == 0
	}
	c.closeUntil = clock() + wait
	c.wakeAll()
	c.mu.Unlock()

	err := c.finishAndDrain()
	c.mu.Lock()
	if c.closeTimer != nil {
		c.closeTimer.Stop()
	}
	// When the peer has ended the channel behind its DisConn there is nobody left
	// to be told of a reset.
	abort := (err != nil || c.discarded) && c.recvErr != io.EOF
	if abort && c.fin == finSent {
		c.abortDue = true
		c.due.Store(true)
	}
	c.unwatch()
	c.mu.Unlock()
	c.control() // the AbortConn
	if abort {
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
	// A connection that the peer has ended is closed without complaint, as TCP's
	// is, and so is one that was to be reset; bytes of ours that were lost are
	// worth an error.
	if errors.Is(err, os.ErrDeadlineExceeded) && wait > 0 {
		return c.opError("close", syscall.ETIMEDOUT)
	}
	return nil
}

// limitClose sets the clock for Close's time, which is needed from when Close
// first waits: mostly it does not. Called with mu held, by Close.
func (c *Conn) limitClose() {
	if c.closeTimer == nil {
		c.closeTimer = time.AfterFunc(c.closeUntil-clock(), c.stopTrying)
	}
}

// stopTrying ends Close's time.
func (c *Conn) stopTrying() {
	c.mu.Lock()
	c.giveUp = true
	c.wakeAll()
	c.mu.Unlock()
}

// finishAndDrain ends our direction, and waits until what was sent cannot be
// lost by closing the channel. Nobody polls or sends when it returns.
func (c *Conn) finishAndDrain() error {
	c.writeMu.Lock() // Writes have been told
	c.mu.Lock()
	for c.polling || c.moves.inRead() { // a Read or the attendant, that is leaving
		c.limitClose()
		c.sit()
	}
	c.drainPolled() // is there anything that was not read?
	var err error
	switch {
	case c.linger == 0:
		err = os.ErrDeadlineExceeded
	case c.discarded && c.fin == finOpen:
		err = syscall.ECONNRESET // a DisConn would look like a good end until the reset comes
	default:
		err = c.finish()
	}
	for c.polling {
		c.limitClose()
		c.sit()
	}
	d, ok := c.qp.(rdma.Drainer)
	drained := err == nil && ok && d.Drained()
	c.draining = err == nil && !drained
	c.mu.Unlock()
	c.writeMu.Unlock()
	if err == nil && !drained {
		err = c.drain()
	}
	if err != nil {
		return err
	}
	// What has come and was not taken in makes the kernel reset the connection
	// when it is closed: right for payload, wrong for the protocol's own messages.
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drainPolled()
	return c.sendErr
}

// drain waits until closing the channel cannot destroy what was sent.
func (c *Conn) drain() error {
	// The peer may be waiting for us to read, as we are for it.
	attend := time.AfterFunc(drainAlone, func() {
		c.mu.Lock()
		c.attend()
		c.mu.Unlock()
	})
	err := c.qp.Drain(c.closeUntil - clock())
	if err == nil {
		c.qp.Drain(kernelTime) // nothing is in this process any more
	}
	attend.Stop()
	c.mu.Lock()
	c.draining = false
	c.wakeAll()
	for c.attending || c.polling {
		c.sit()
	}
	c.mu.Unlock()
	return err
}
