package sdp

import (
	"os"
	"sync"
	"syscall"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// maxBatch is how many messages are posted at once at most.
const maxBatch = 16

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
	direct := c.zsource.Wants(len(b))
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
	if c.appender == nil || c.smallWrites < appendAfter || c.zsource != nil || c.cannotWrite() != nil {
		return 0
	}
	if !c.appends.Load() {
		c.appends.Store(true)
	}
	return c.source.Size()
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
	o := newOutgoing()
	defer o.free()
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
		if err == nil && !busy && c.acct.Room() == 0 {
			c.traffic.CreditStalls++
		}
		for err == nil && !busy && c.acct.Room() == 0 {
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
func (c *conn) post(o *outgoing, b []byte) (n int, err error) {
	c.sendMu.Lock()
	c.mu.Lock()
	if c.zsource.Pending() {
		// It says what is to become of what has gone so far, and goes first.
		c.mu.Unlock()
		c.sendControl()
		c.mu.Lock()
	}
	c.source.Wrote(len(b))
	o.reset()
	room := min(c.acct.Room(), int(c.batch))
	if c.zsource.Pending() {
		room = 0
	}
	taken, stamped := 0, 0
	if advert, ok := c.zsink.Carry(); ok && room > 0 && len(b) > 0 {
		taken, err = c.postCarrying(o, b, advert)
	} else {
		size := 0
		if room > 0 {
			size = c.payload(len(b))
		}
		for len(o.wrs) < room && stamped < len(b) {
			k := min(size, len(b)-stamped)
			o.add(c, &wire.Message{Header: wire.Header{MID: wire.MIDData}, Payload: b[stamped:][:k]})
			stamped += k
		}
		if stamped == len(b) && len(o.wrs) > 0 {
			o.wrs[len(o.wrs)-1].Most = c.mayGrow()
		}
		c.zsource.Sending(len(o.wrs), stamped, false)
		c.mu.Unlock()
		if len(o.wrs) > 0 {
			taken, err = c.qp.PostSend(o.wrs)
		}
		c.mu.Lock()
	}
	c.acct.Sent(taken)
	n = c.traffic.countSent(o.wrs[:taken])
	c.source.Carried(n)
	c.payloadSent(taken, n)
	if err != nil {
		err = c.sendFailed(err)
	}
	if _, request := c.source.Request(); request {
		c.due.Store(true)
	}
	c.mu.Unlock()
	c.unlockSend()
	return n, err
}

// payload returns how many bytes a Data message can carry, when n are to be sent: what
// the peer's private buffers hold, unless the device has no memory for so much. Called
// with mu held.
func (c *conn) payload(n int) int {
	most := c.source.Payload()
	if narrow, ok := c.qp.(rdma.Narrow); ok {
		return min(most, narrow.Width(min(most, n)+wire.HeaderLen)-wire.HeaderLen)
	}
	return most
}

// postCarrying sends a message of b in the SinkAvail that a Read waits to send:
// the Transaction mechanism (§9.4). What comes meanwhile means one thing if it
// has gone and another if not, so mu is held until that is known. Called with
// sendMu and mu held.
func (c *conn) postCarrying(o *outgoing, b []byte, advert wire.Advert) (taken int, err error) {
	n := min(c.payload(len(b))-(wire.MaxHeaderLen-wire.HeaderLen), len(b))
	o.add(c, &wire.Message{Header: wire.Header{MID: wire.MIDSinkAvail}, Advert: advert, Payload: b[:n]})
	c.zsource.Sending(1, n, false)
	if taken, err = c.qp.PostSend(o.wrs); taken > 0 {
		c.zsink.Carried()
	}
	return taken, err
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

// outgoing is a batch of messages under way to the device, kept in a pool
// because an idle connection needs none.
type outgoing struct {
	wrs     []rdma.SendWR
	array   [maxBatch]rdma.SendWR
	headers [maxBatch][wire.MaxHeaderLen]byte
}

var outgoingPool = sync.Pool{New: func() any { return new(outgoing) }}

func newOutgoing() *outgoing { return outgoingPool.Get().(*outgoing) }

func (o *outgoing) free() {
	o.reset()
	outgoingPool.Put(o)
}

func (o *outgoing) reset() {
	clear(o.wrs)
	o.wrs = o.array[:0]
}

// add stamps a message as the next of the batch. Called with Conn.mu held.
func (o *outgoing) add(c *conn, m *wire.Message) {
	i := len(o.wrs)
	if i == 0 {
		c.ackHeld()
	}
	m.MSeq, m.MSeqAck, m.Bufs = c.acct.Next(uint32(i))
	o.wrs = append(o.wrs, rdma.SendWR{
		Header:    m.AppendHeader(o.headers[i][:0]),
		Payload:   m.Payload,
		Solicited: solicited(m),
	})
}
