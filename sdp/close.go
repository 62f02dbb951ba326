package sdp

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// closeTime is how long Close waits for what was written to leave this process.
const closeTime = time.Second

// CloseRead ends the direction towards us: Reads return io.EOF, and what comes
// is dropped.
func (c *Conn) CloseRead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("close", errClosed)
	}
	c.readClosed = true
	c.wakeAll()
	return nil
}

// CloseWrite ends the direction towards the peer behind what was written: the
// peer's Reads return io.EOF then. A Write in progress fails with syscall.EPIPE.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.opError("close", errClosed)
	}
	c.writeClosed = true
	c.wakeAll()
	c.mu.Unlock()
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	c.mu.Lock()
	err := c.finish()
	c.mu.Unlock()
	return c.opError("close", err)
}

// finish sends the DisConn behind what the flusher has, unless it has been sent,
// and waits for it to be in the device. Called with writeMu and mu held; returns
// with them held.
func (c *Conn) finish() error {
	for c.small.flushing && c.cannotFlush() == nil {
		c.sit()
	}
	if c.sendErr != nil || c.finSent {
		return c.sendErr
	}
	c.finDue = true
	for {
		c.due.Store(true)
		c.mu.Unlock()
		c.control()
		c.mu.Lock()
		switch {
		case c.finSent:
			return nil
		case c.sendErr != nil:
			return c.sendErr
		case c.giveUp:
			return os.ErrDeadlineExceeded
		}
		c.await()
	}
}

// Close ends the connection: every call in progress returns net.ErrClosed. It
// returns when all that was written is out of this process, after one second at
// most; what is not by then is lost, and the peer sees a reset. It sees one too
// if something that it sent has not been read.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.opError("close", errClosed)
	}
	c.closed = true
	for _, d := range []*deadline{&c.read, &c.write} {
		d.set(time.Time{})
	}
	c.discarded = c.discarded || c.sink.Bytes() > 0
	c.wakeAll()
	c.mu.Unlock()

	timer := time.AfterFunc(closeTime, func() {
		c.mu.Lock()
		c.giveUp = true
		c.wakeAll()
		c.mu.Unlock()
	})
	defer timer.Stop()
	until := time.Now().Add(closeTime)

	c.writeMu.Lock() // Writes have been told
	c.readMu.Lock()
	c.mu.Lock()
	err := c.finish()
	for c.polling { // the attendant is leaving
		c.sit()
	}
	c.mu.Unlock()
	c.readMu.Unlock()
	c.writeMu.Unlock()

	if err == nil {
		err = c.qp.Drain(time.Until(until))
	}
	if err == nil {
		// What has come and is not read makes the kernel reset the connection when
		// it is closed: right for payload, wrong for the protocol's own messages.
		c.mu.Lock()
		c.drainPolled()
		err = c.sendErr
		c.mu.Unlock()
	}
	if err != nil || c.discarded {
		c.qp.Abort()
	} else {
		c.qp.Close()
	}
	c.mu.Lock()
	c.unwatch()
	for c.sink.Head() != nil {
		if owner := c.sink.Consume(len(c.sink.Head())); owner != nil {
			owner.Release()
		}
	}
	c.mu.Unlock()
	c.workers.Wait()
	c.tcp.Close()
	// A connection that the peer has ended is closed without complaint, as TCP's
	// is; only bytes of ours that were lost are worth one.
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return c.opError("close", syscall.ETIMEDOUT)
	}
	return nil
}
