package engine

import (
	"io"
	"os"

	"github.com/gosdp/gosdp/internal/session"
)

// lockedCopy is how many bytes are copied to the program with mu held. A longer copy would
// delay Writes.
const lockedCopy = 4 << 10

func (c *Conn) Read(b []byte) (int, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	c.mu.Lock()
	n, err := c.readReleasing(b)
	c.session.ReadDone()
	c.mu.Unlock()
	if c.dump.Load() != nil {
		c.dumpRead(b[:n], err)
	}
	err = c.once(err, io.EOF)
	if c.out.due.Load() {
		c.out.sendDue()
	}
	if err == io.EOF {
		return n, err
	}
	return n, c.opError("read", err)
}

// readReleasing is Read with readMu held too. It releases mu while it waits or copies.
func (c *Conn) readReleasing(b []byte) (n int, err error) {
	if len(b) == 0 && !c.phase.closed() {
		return 0, nil // as in package net, whatever the state
	}
	for {
		if n == 0 {
			if head, err := c.lookReleasing(); head == nil && err != nil {
				return 0, err
			}
		}
		switch c.session.PlanRead(len(b)-n, n > 0, c.sendErr != nil) {
		case session.ReadCopy:
			if n += c.copyOutReleasing(b[n:]); n == len(b) {
				return n, nil
			}
		case session.ReadMessage:
			n = copy(b, c.session.Head())
			c.promise.consume(n)
			c.out.checkDueLocked()
			return n, nil
		case session.ReadFetch:
			if n += c.zcopy.fetchReleasing(b[n:]); n > 0 {
				return n, nil
			}
		case session.ReadControl:
			c.out.flushControlReleasing()
		case session.ReadAdvertise:
			if n = c.zcopy.advertiseReleasing(b); n > 0 {
				return n, nil
			}
		case session.ReadWait:
			c.poll.waitAsLeaderReleasing()
		case session.ReadDone:
			return n, nil
		}
	}
}

// cannotReadLocked returns why a Read must not go on, whatever has arrived, or nil.
func (c *Conn) cannotReadLocked() error {
	switch {
	case c.phase.closed():
		return errClosed
	case c.read.passed():
		return os.ErrDeadlineExceeded
	}
	return nil
}

// mayNotWaitLocked returns why a Read must not wait for more than has arrived, or nil.
func (c *Conn) mayNotWaitLocked() error {
	if err := c.cannotReadLocked(); err != nil || !c.phase.readClosed() {
		return err
	}
	return io.EOF
}

// lookReleasing returns the oldest unread bytes. If there are none, it returns why none will
// arrive, or nil if some may. After CloseRead it may release mu in between.
func (c *Conn) lookReleasing() ([]byte, error) {
	if c.phase.readClosed() && c.session.Head() == nil {
		c.poll.receiveArrivedReleasing()
	}
	if err := c.cannotReadLocked(); err != nil {
		return nil, err
	}
	head := c.session.Head()
	switch {
	case head != nil:
		return head, nil
	case c.recvErr != nil:
		return nil, c.recvErr
	case c.session.PeerEnded(), c.phase.readClosed() && !c.session.Announced():
		return nil, io.EOF
	}
	return nil, nil
}

// awaitPayloadReleasing waits until there are unread bytes, or returns why there will be none.
// The caller must hold readMu too. It releases mu in between.
func (c *Conn) awaitPayloadReleasing() error {
	for {
		if head, err := c.lookReleasing(); head != nil || err != nil {
			return err
		}
		if c.session.PlanRead(0, false, c.sendErr != nil) == session.ReadControl {
			c.out.flushControlReleasing()
			continue
		}
		c.poll.waitAsLeaderReleasing()
	}
}

// copyOutReleasing copies unread payload to b, and returns how many bytes. It releases mu
// during long copies.
func (c *Conn) copyOutReleasing(b []byte) (n int) {
	for n < len(b) {
		head := c.session.Head()
		if head == nil {
			break
		}
		var k int
		if len(head) <= lockedCopy {
			k = copy(b[n:], head)
		} else {
			c.lendAndUnlock()
			k = copy(b[n:], head)
			c.mu.Lock()
			c.unlendLocked()
		}
		n += k
		c.promise.consume(k)
	}
	c.out.checkDueLocked() // the credit that this gives the peer
	return n
}

// lent says whether a call that holds readMu reads the session's Head without mu. Nothing may be put
// in front of the Head meanwhile.
type lent int8

const (
	notLent lent = iota
	isLent
	lentWanted // and returnPayload waits for the end of that, as a follower
)

// lendAndUnlock releases mu, so that the caller can read the Head. The caller takes mu again and calls
// unlendLocked, and consumes what it has read before it releases mu.
func (c *Conn) lendAndUnlock() {
	c.lent = isLent
	c.mu.Unlock()
}

func (c *Conn) unlendLocked() {
	if c.lent == lentWanted {
		c.poll.broadcastLocked()
	}
	c.lent = notLent
}
