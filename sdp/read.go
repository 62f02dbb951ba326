package sdp

import (
	"io"
	"os"

	"github.com/gosdp/gosdp/internal/session"
)

// lockedCopy is how many bytes are copied to the program under the lock; more
// would keep a Write waiting.
const lockedCopy = 4 << 10

func (c *conn) Read(b []byte) (int, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	c.mu.Lock()
	c.noAppends()
	n, err := c.readLocked(b)
	c.session.ReadDone()
	c.giveBack()
	c.mu.Unlock()
	if c.due.Load() {
		c.control()
	}
	if err == io.EOF {
		return n, err
	}
	return n, c.opError("read", err)
}

func (c *conn) readLocked(b []byte) (int, error) {
	if len(b) == 0 && !c.closed {
		return 0, nil // as package net's, whatever else is the case
	}
	for {
		if head, err := c.look(); head == nil && err != nil {
			return 0, err
		}
		switch c.session.PlanRead(len(b), c.sendErr != nil) {
		case session.ReadCopy:
			n := c.copyOut(b)
			if n < len(b) && c.session.Sink.Head() == nil && c.session.ZSink.Suits(len(b)-n) {
				n += c.fetch(b[n:]) // what rode along with an advertisement is a small part of it
			}
			return n, nil
		case session.ReadFetch:
			if n := c.fetch(b); n > 0 {
				return n, nil
			}
		case session.ReadDecline:
			c.say()
		case session.ReadAdvertise:
			if n := c.advertise(b); n > 0 {
				return n, nil
			}
		case session.ReadWait:
			c.claim()
		}
	}
}

// cannotRead returns why a Read must not go on, whatever has come, or nil.
// Called with mu held.
func (c *conn) cannotRead() error {
	switch {
	case c.closed:
		return errClosed
	case c.readClosed:
		return io.EOF
	case c.read.passed():
		return os.ErrDeadlineExceeded
	}
	return nil
}

// awaitPayload waits until there is something to read, or returns why nothing
// will be. Called with readMu and mu held; lets go of mu meanwhile.
func (c *conn) awaitPayload() error {
	for {
		if head, err := c.look(); head != nil || err != nil {
			return err
		}
		if c.session.ZSink.Decline() { // there is no memory to fetch it into
			c.say()
			continue
		}
		c.claim()
	}
}

// look returns the oldest unread bytes, and otherwise why there are none, nil if
// some may come. Called with readMu and mu held.
func (c *conn) look() ([]byte, error) {
	if err := c.cannotRead(); err != nil {
		return nil, err
	}
	head := c.session.Sink.Head()
	switch {
	case head != nil:
		return head, nil
	case c.recvErr != nil:
		return nil, c.recvErr
	case c.session.Sink.Ended():
		return nil, io.EOF
	}
	return nil, nil
}

// reportRead tells the peer's end that the program has read n bytes more that came as
// payload. Called with mu held.
func (c *conn) reportRead(n int) {
	if c.reporter != nil && !c.failed && !c.closed {
		c.reporter.ReportRead(n)
	}
}

// copyOut copies unread payload to b, and returns how many bytes.
func (c *conn) copyOut(b []byte) (n int) {
	for n < len(b) {
		head := c.session.Sink.Head()
		if head == nil {
			break
		}
		var k int
		if len(head) <= lockedCopy {
			k = copy(b[n:], head)
		} else {
			c.mu.Unlock()
			k = copy(b[n:], head)
			c.mu.Lock()
		}
		n += k
		c.consume(k)
	}
	c.reportRead(n)
	if n > 0 {
		c.lookDue()
	}
	return n
}
