package engine

import (
	"runtime"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

// fetchLocked reads what the peer advertises directly into b, and returns how many bytes.
// When it returns, no RDMA Read is under way. 0 bytes: the peer has withdrawn its
// advertisement, or the call must end. The caller must hold readMu too.
func (z *zeroCopy) fetchLocked(b []byte) (n int) {
	var pin runtime.Pinner
	pin.Pin(&b[0])
	defer pin.Unpin()
	c := z.conn
	z.reading, z.fetched = true, 0
	defer z.endReadingLocked()
	for posted, room := 0, true; ; {
		for room && posted < len(b) && z.reads < z.mostRead && c.cannotReadLocked() == nil && c.recvErr == nil {
			size, stag, va, ok := c.session.Fetch(min(len(b)-posted, fetchPart))
			if !ok {
				break
			}
			if room = z.postReadLocked(rdma.ReadWR{ID: uint64(size), Local: b[posted : posted+size], STag: rdma.STag(stag), VA: va}); room {
				posted += size
			}
		}
		switch {
		case z.reads == 0:
			return z.fetched
		case c.recvErr != nil || !z.mayWaitLocked(c.cannotReadLocked(), &z.readAnswer):
			z.abortToReclaimLocked()
			z.reads = 0
			return z.fetched
		}
		room = true
		c.poll.waitAsLeaderLocked()
	}
}

// endReadingLocked notes that the Read's memory is not exposed any more.
func (z *zeroCopy) endReadingLocked() {
	z.reading = false
	z.readAnswer.set(time.Time{})
	z.conn.poll.broadcastLocked() // Close may be waiting
}

// postReadLocked posts an RDMA Read that the Session has planned, and reports whether the
// device had room for it.
func (z *zeroCopy) postReadLocked(wr rdma.ReadWR) bool {
	c := z.conn
	z.reads++
	c.mu.Unlock()
	c.out.mu.Lock()
	err := c.qp.PostRead(wr)
	c.out.unlock()
	if c.qp.Busy() {
		c.qp.Flush()
	}
	c.mu.Lock()
	if err == nil {
		return true
	}
	z.reads--
	due := c.session.Unfetch(len(wr.Local))
	if err != rdma.ErrNoRoom {
		c.sendFailedLocked(err)
	} else if due {
		c.out.flushControlLocked()
	}
	return false
}

// advertiseLocked has the peer fill b, and returns how many bytes were filled when b is not
// exposed any more. The caller must hold readMu too.
func (z *zeroCopy) advertiseLocked(b []byte) (n int) {
	b = b[:min(len(b), advertiseMost)]
	var pin runtime.Pinner
	pin.Pin(&b[0])
	defer pin.Unpin()
	c := z.conn
	c.mu.Unlock()
	region, err := c.qp.Register(b, rdma.RemoteWrite)
	c.mu.Lock()
	if err != nil {
		if c.session.RefuseAdverts() {
			c.out.flushControlLocked()
		}
		return 0
	}
	if _, err := c.lookLocked(); err == nil && c.session.Advertise(uint32(region.STag), region.VA, len(b)) {
		z.reading = true
		n = z.awaitFilledLocked()
	}
	c.mu.Unlock()
	c.qp.Invalidate(region.STag)
	c.mu.Lock()
	z.endReadingLocked()
	return n
}

// awaitFilledLocked sends the SinkAvail that is due, waits until the advertisement has
// ended, and returns how many bytes the peer has filled.
func (z *zeroCopy) awaitFilledLocked() int {
	c := z.conn
	c.out.flushControlLocked()
	for {
		n, ended := c.session.AdvertEnded()
		switch {
		case ended:
			return n
		case c.recvErr != nil:
			c.session.AbandonAdvert()
			continue
		case !z.mayWaitLocked(c.mayNotWaitLocked(), &z.readAnswer):
			z.abortToReclaimLocked()
			continue
		case c.mayNotWaitLocked() != nil && c.session.WithdrawAdvert():
			c.out.flushControlLocked()
			continue
		}
		c.poll.waitAsLeaderLocked()
	}
}
