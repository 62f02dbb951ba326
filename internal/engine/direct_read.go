package engine

import (
	"runtime"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

// fetchReleasing reads what the peer advertises directly into b, and returns how many bytes.
// When it returns, no RDMA Read is under way. 0 bytes: the peer has withdrawn its
// advertisement, or the call must end. The caller must hold readMu too.
func (z *zeroCopy) fetchReleasing(b []byte) (n int) {
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
			if room = z.postReadReleasing(rdma.ReadWR{ID: uint64(size), Local: b[posted : posted+size], STag: rdma.STag(stag), VA: va}); room {
				posted += size
			}
		}
		switch {
		case z.reads == 0:
			return z.fetched
		case c.recvErr != nil || !z.mayWaitLocked(c.cannotReadLocked(), &z.readAnswer):
			z.abortToReclaimReleasing()
			z.reads = 0
			return z.fetched
		}
		room = true
		c.poll.waitAsLeaderReleasing()
	}
}

// endReadingLocked notes that the Read's memory is not exposed any more.
func (z *zeroCopy) endReadingLocked() {
	z.reading = false
	z.readAnswer.set(time.Time{})
	z.conn.poll.broadcastLocked() // Close may be waiting
}

// postReadReleasing posts an RDMA Read that the Session has planned, and reports whether the
// device had room for it.
func (z *zeroCopy) postReadReleasing(wr rdma.ReadWR) bool {
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
		c.out.flushControlReleasing()
	}
	return false
}

// advertiseReleasing has the peer fill b, and returns how many bytes were filled when b is not
// exposed any more. The caller must hold readMu too.
func (z *zeroCopy) advertiseReleasing(b []byte) (n int) {
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
			c.out.flushControlReleasing()
		}
		return 0
	}
	if _, err := c.lookReleasing(); err == nil && c.session.Advertise(uint32(region.STag), region.VA, len(b)) {
		z.reading = true
		n = z.awaitFilledReleasing()
	}
	c.mu.Unlock()
	c.qp.Invalidate(region.STag)
	c.mu.Lock()
	z.endReadingLocked()
	return n
}

// awaitFilledReleasing sends the SinkAvail that is due, waits until the advertisement has
// ended, and returns how many bytes the peer has filled.
func (z *zeroCopy) awaitFilledReleasing() int {
	c := z.conn
	c.out.flushControlReleasing()
	for {
		n, ended := c.session.AdvertEnded()
		switch {
		case ended:
			return n
		case c.recvErr != nil:
			c.session.AbandonAdvert()
			continue
		case !z.mayWaitLocked(c.mayNotWaitLocked(), &z.readAnswer):
			z.abortToReclaimReleasing()
			continue
		case c.mayNotWaitLocked() != nil && c.session.WithdrawAdvert():
			c.out.flushControlReleasing()
			continue
		}
		c.poll.waitAsLeaderReleasing()
	}
}
