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

// Write writes b to the stream, and returns when all of it is in the device, or an
// error has come, and n bytes are in the device or the peer has them. Small Writes in
// quick succession return when they are in this process's buffer, to be sent some
// microseconds later; an error in sending them is a later call's. Errors are *net.OpError
// around net.ErrClosed, os.ErrDeadlineExceeded, syscall.EPIPE after CloseWrite,
// syscall.ECONNRESET, or what was wrong with the connection. It allocates
// nothing.
func (c *Conn) Write(b []byte) (n int, err error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	n, err = c.writeLocked(b)
	return n, c.opError("write", err)
}

// writeLocked is Write with writeMu held.
func (c *Conn) writeLocked(b []byte) (n int, err error) {
	c.mu.Lock()
	c.activity++
	if err := c.cannotWrite(); err != nil || len(b) == 0 {
		c.mu.Unlock()
		return 0, err
	}
	direct := c.zsource.Wants(len(b))
	if !direct && len(b) <= smallWrite && c.small.takes(c, b) {
		c.mu.Unlock()
		return len(b), nil
	}
	for c.small.flushing && err == nil { // what was written before goes first
		c.sit()
		err = c.cannotWrite()
	}
	c.mu.Unlock()
	switch {
	case err != nil:
	case direct:
		n, err = c.writeDirect(b)
	default:
		n, err = c.send(b, (*Conn).cannotWrite)
	}
	return n, err
}

// cannotWrite returns why a Write must not go on, or nil. Called with mu held.
func (c *Conn) cannotWrite() error {
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
// returns an error, and returns how much of it the device has taken. One
// goroutine at a time: a Write, or the flusher while Writes wait for it.
func (c *Conn) send(b []byte, stop func(*Conn) error) (n int, err error) {
	o := newOutgoing()
	defer o.free()
	for {
		k, err := c.post(o, b[n:])
		if n += k; err != nil {
			return n, err
		}
		busy := c.qp.Busy()
		if n == len(b) && !busy {
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

// post sends as much of b as credit, the device and a batch allow, and returns
// how many bytes went.
func (c *Conn) post(o *outgoing, b []byte) (n int, err error) {
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
		for size := c.source.Payload(); len(o.wrs) < room && stamped < len(b); {
			k := min(size, len(b)-stamped)
			o.add(c, &wire.Message{Header: wire.Header{MID: wire.MIDData}, Payload: b[stamped:][:k]})
			stamped += k
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

// postCarrying sends a message of b in the SinkAvail that a Read waits to send:
// the Transaction mechanism (§9.4). What comes meanwhile means one thing if it
// has gone and another if not, so mu is held until that is known. Called with
// sendMu and mu held.
func (c *Conn) postCarrying(o *outgoing, b []byte, advert wire.Advert) (taken int, err error) {
	n := min(c.source.Size()-wire.MaxHeaderLen, len(b))
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
func (c *Conn) waitRoom() error {
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
func (c *Conn) sendFailed(err error) error {
	if c.sendErr == nil {
		c.sendErr = err
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
func (o *outgoing) add(c *Conn, m *wire.Message) {
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
