package sdp

import (
	"os"
	"syscall"

	"github.com/gosdp/gosdp/internal/session"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

func (c *conn) Write(b []byte) (n int, err error) {
	if len(b) <= smallWrite && c.appends.Load() && c.appender.Append(b) {
		return len(b), nil
	}
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	n, err = c.writeLocked(b)
	return n, c.opError("write", err)
}

// writeLocked is Write with writeMu held.
func (c *conn) writeLocked(b []byte) (n int, err error) {
	c.mu.Lock()
	c.activity++
	if err := c.cannotWrite(); err != nil || len(b) == 0 {
		c.mu.Unlock()
		return 0, err
	}
	direct := c.session.ZSource.Wants(len(b))
	c.countSmall(len(b))
	c.mu.Unlock()
	if direct {
		return c.writeDirect(b)
	}
	return c.send(b, (*conn).cannotWrite)
}

// Small Writes in quick succession share messages where the device can append to one
// that the peer has not taken yet: then the peer takes many Writes at once, and needs
// one buffer for all of them. A message that may grow costs the peer's end a little
// more, so the first Writes after a Read, which may be requests, are complete.
//
// Such a Write takes no lock of the connection's. appends says that it may try. It is
// cleared, under mu, by whatever forbids Writes (noAppends). A Write that has seen it
// just before appends to a message that was posted earlier, or not at all: the device
// appends only to the last message, and only the last one of a Write may grow, so the
// bytes of two Writes do not mix, and nothing comes after a DisConn. Zero copy counts
// messages and bytes in its order, so where it takes part nothing is appended.
const (
	smallWrite  = 8 << 10 // bytes; longer Writes are messages of their own
	appendAfter = 4       // small Writes in succession
)

// countSmall counts small Writes in succession. Called with writeMu and mu held.
func (c *conn) countSmall(n int) {
	switch {
	case n > smallWrite:
		c.smallWrites = 0
	case c.smallWrites < appendAfter:
		c.smallWrites++
	}
}

// mayGrow has Writes append to what is being posted, and returns how long it may
// become; 0 if nothing is to be appended. Called with writeMu and mu held.
func (c *conn) mayGrow() int {
	if c.appender == nil || c.smallWrites < appendAfter || c.session.ZSource != nil || c.cannotWrite() != nil {
		return 0
	}
	if !c.appends.Load() {
		c.appends.Store(true)
	}
	return c.session.Source.Size()
}

// noAppends has the next Write look at the connection's state. Called with mu held.
func (c *conn) noAppends() {
	c.smallWrites = 0
	if c.appends.Load() {
		c.appends.Store(false)
	}
}

// cannotWrite returns why a Write must not go on, or nil. Called with mu held.
func (c *conn) cannotWrite() error {
	switch {
	case c.closed:
		return errClosed
	case c.write.passed():
		return os.ErrDeadlineExceeded
	case c.sendErr != nil:
		return c.sendErr
	case c.writeClosed:
		return syscall.EPIPE
	}
	return nil
}

// send sends b as Data messages, until all of it is out of this process or stop
// returns an error, and returns how much of it the device has taken. Called with
// writeMu held.
func (c *conn) send(b []byte, stop func(*conn) error) (n int, err error) {
	o := newBatch()
	defer freeBatch(o)
	for {
		k, err := c.post(o, b[n:])
		if n += k; err != nil {
			return n, err
		}
		busy := c.qp.Busy()
		if n == len(b) && !busy {
			c.settle(stop)
			return n, nil
		}
		c.mu.Lock()
		if err = stop(c); err == nil && busy {
			err = c.waitRoom()
		}
		if err == nil && !busy && c.session.Account.Room() == 0 {
			c.traffic.CreditStalls++
		}
		for err == nil && !busy && c.session.Account.Room() == 0 {
			c.starved = true
			c.watchLocked()
			c.await()
			c.starved = false
			err = stop(c)
		}
		c.mu.Unlock()
		switch {
		case err == nil:
		case n == len(b):
			c.qp.Flush() // nobody waits for the rest of it, but the device has it all
			return n, nil
		default:
			c.qp.Flush()
			return n, err
		}
	}
}

// settle waits until what was posted has left this process, or stop returns an error:
// then nobody waits for the rest, but the device has it all.
func (c *conn) settle(stop func(*conn) error) {
	settler, ok := c.qp.(rdma.Settler)
	for ok && !settler.Settled() {
		c.mu.Lock()
		err := stop(c)
		if err == nil {
			c.attend() // or two ends that wait for each other's room wait for ever
			c.inRoom = true
			c.mu.Unlock()
			err = settler.Settle()
			c.mu.Lock()
			c.inRoom = false
			if err != nil {
				c.sendFailed(err)
			}
		}
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// post sends as much of b as credit, the device and a batch allow, and returns
// how many bytes went.
func (c *conn) post(o *session.Batch, b []byte) (n int, err error) {
	c.sendMu.Lock()
	c.mu.Lock()
	if c.session.Preceded() {
		c.mu.Unlock()
		c.sendControl()
		c.mu.Lock()
	}
	room, size := min(c.session.Room(), int(c.batch)), 0
	if room > 0 {
		size = c.payload(len(b))
	}
	c.session.Data(o, b, room, size)
	taken := 0
	if o.Carries() {
		taken, err = c.qp.PostSend(o.WRs)
	} else {
		if len(o.WRs) > 0 && o.Bytes() == len(b) {
			o.WRs[len(o.WRs)-1].Most = c.mayGrow()
		}
		c.mu.Unlock()
		if len(o.WRs) > 0 {
			taken, err = c.qp.PostSend(o.WRs)
		}
		c.mu.Lock()
	}
	n, due := c.session.Sent(o, taken)
	c.traffic.BcopySent.add(Counts{uint64(taken), uint64(n)})
	if err != nil {
		err = c.sendFailed(err)
	}
	if due {
		c.due.Store(true)
	}
	c.mu.Unlock()
	c.unlockSend()
	return n, err
}

// payload returns how many bytes may follow the BSDH of a message, when n of payload are to
// be sent, which may have to share the message with an advertisement: what the peer's
// private buffers hold, unless the device has no memory for so much. Called with mu held.
func (c *conn) payload(n int) int {
	most := c.session.Source.Payload()
	if narrow, ok := c.qp.(rdma.Narrow); ok {
		return narrow.Width(min(most, n+session.Extension)+wire.HeaderLen) - wire.HeaderLen
	}
	return most
}

// waitRoom waits for the device to have room. Somebody has to read meanwhile, or
// two ends that wait for each other's room wait for ever. Called and returns
// with mu held.
func (c *conn) waitRoom() error {
	c.attend()
	c.inRoom = true
	c.mu.Unlock()
	err := c.qp.WaitRoom()
	c.mu.Lock()
	c.inRoom = false
	if err != nil {
		return c.sendFailed(err)
	}
	return nil
}

// sendFailed takes in that the device sends no more. What has come can still be
// read. Called with mu held.
func (c *conn) sendFailed(err error) error {
	if c.sendErr == nil {
		c.sendErr = err
		c.noAppends()
		c.wakeAll() // one of those who wait for it may be polling
	}
	return c.sendErr
}
