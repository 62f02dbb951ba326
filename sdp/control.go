package sdp

import (
	"sync"

	"github.com/gosdp/gosdp/internal/session"
	"github.com/gosdp/gosdp/wire"
)

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

// lookDue has the messages that are due sent, by control. Called with mu held.
func (c *conn) lookDue() {
	if c.session.Due() {
		c.due.Store(true)
	}
}

// sendControl sends what is due, one message after the other. Called with
// sendMu held.
func (c *conn) sendControl() {
	b := newBatch()
	defer freeBatch(b)
	for {
		c.mu.Lock()
		c.due.Store(false)
		if !c.session.Control(b, c.sendErr != nil) {
			c.dropAbort()
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()

		n, err := c.qp.PostSend(b.WRs)
		c.mu.Lock()
		c.session.Sent(b, n)
		if n == 1 {
			c.traffic.ControlSent++
			switch b.MID() {
			case wire.MIDDisConn:
				c.wakeAll() // who waits for it may be polling
			case wire.MIDAbortConn:
				c.dropAbort()
			}
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

// dropAbort drops the channel if an AbortConn was due: it has gone, or cannot.
// Called with mu held.
func (c *conn) dropAbort() {
	if c.session.DropAbort() {
		c.abort()
	}
}

// batchPool has batches of messages under way to the device: an idle connection needs
// none.
var batchPool = sync.Pool{New: func() any { return new(session.Batch) }}

func newBatch() *session.Batch { return batchPool.Get().(*session.Batch) }

func freeBatch(b *session.Batch) {
	b.Reset()
	batchPool.Put(b)
}
