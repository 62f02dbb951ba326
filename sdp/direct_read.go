package sdp

import (
	"runtime"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

// fetch reads what the peer advertises straight into b, and returns how many
// bytes. It returns when no RDMA Read is under way any more. 0 bytes: the peer has
// withdrawn it, or the call is to end. Called and returns with readMu and mu held;
// lets go of mu meanwhile.
func (c *conn) fetch(b []byte) (n int) {
	var pin runtime.Pinner
	pin.Pin(&b[0])
	defer pin.Unpin()
	v := c.moves
	v.reading, v.fetched = true, 0
	defer func() {
		v.reading = false
		v.giveUpR.set(time.Time{})
		c.tell() // Close may be waiting
	}()
	for posted, room := 0, true; ; {
		// Payload that came meanwhile is in front of what is advertised behind it.
		for room && posted < len(b) && v.reads < v.most && c.session.Sink.Head() == nil && c.cannotRead() == nil && c.recvErr == nil {
			size, stag, va, ok := c.session.ZSink.Fetch(min(len(b)-posted, fetchPart))
			if !ok {
				break
			}
			if room = c.postRead(rdma.ReadWR{ID: uint64(size), Local: b[posted : posted+size], STag: rdma.STag(stag), VA: va}); room {
				posted += size
			}
		}
		switch {
		case v.reads == 0:
			return v.fetched
		case c.recvErr != nil || !c.patient(c.cannotRead(), &v.giveUpR):
			c.getBack()
			v.reads = 0
			return v.fetched
		}
		room = true
		c.claim()
	}
}

// postRead posts an RDMA Read that the Sink has planned, and reports whether the
// device had room for it. Called and returns with readMu and mu held; lets go of
// mu meanwhile.
func (c *conn) postRead(wr rdma.ReadWR) bool {
	c.moves.reads++
	c.mu.Unlock()
	c.sendMu.Lock()
	err := c.qp.PostRead(wr)
	c.unlockSend()
	if c.qp.Busy() {
		c.qp.Flush()
	}
	c.mu.Lock()
	if err == nil {
		return true
	}
	c.moves.reads--
	c.session.ZSink.Unfetch(len(wr.Local))
	if err != rdma.ErrNoRoom {
		c.sendFailed(err)
	} else if c.moves.reads == 0 {
		c.session.ZSink.Decline() // nothing would tell when to try again
		c.say()
	}
	return false
}

// advertise has the peer fill b, and returns how many bytes of it were filled,
// or copied from the one message that came instead. 0 bytes: neither has
// happened. It returns when b is no longer exposed. Called and returns with readMu
// and mu held; lets go of mu meanwhile.
func (c *conn) advertise(b []byte) (n int) {
	b = b[:min(len(b), advertiseMost)]
	var pin runtime.Pinner
	pin.Pin(&b[0])
	defer pin.Unpin()
	c.mu.Unlock()
	region, err := c.qp.Register(b, rdma.RemoteWrite)
	c.mu.Lock()
	if err != nil {
		c.session.ZSink.Refuse()
		return 0
	}
	if head, err := c.look(); head == nil && err == nil && c.session.ZSink.MayOffer(len(b), c.session.Sink.Size()) {
		n = c.waitFilled(region, len(b))
	}
	c.mu.Unlock()
	c.qp.Invalidate(region.STag)
	c.mu.Lock()
	c.moves.reading = false
	c.tell() // Close may be waiting
	if n == 0 && c.cannotRead() == nil && c.session.Sink.Head() != nil {
		n = c.copyMessage(b) // one message's payload and no more (§9.5.1)
	}
	return n
}

// waitFilled sends the SinkAvail for region, of size bytes, and waits until it
// has ended. It returns how many bytes the peer has filled. Called and returns
// with readMu and mu held; lets go of mu meanwhile.
func (c *conn) waitFilled(region rdma.Region, size int) int {
	v := c.moves
	v.reading = true
	defer v.giveUpR.set(time.Time{})
	c.session.ZSink.Offer(uint32(region.STag), region.VA, size)
	c.say()
	for {
		n, over := c.session.ZSink.Outcome()
		switch {
		case over:
			return n
		case c.recvErr != nil:
			c.session.ZSink.Abandon()
			continue
		case !c.patient(c.cannotRead(), &v.giveUpR):
			c.getBack()
			continue
		case c.cannotRead() != nil && c.session.ZSink.Withdraw():
			c.say()
			continue
		}
		c.claim()
	}
}

// copyMessage copies the payload of one message, at most, to b.
func (c *conn) copyMessage(b []byte) int {
	n := copy(b, c.session.Sink.Head())
	c.consume(n)
	c.reportRead(n)
	c.lookDue()
	return n
}
