package engine

import (
	"runtime"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/session"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/sdp/stats"
)

// write writes b as the Session plans it: advertised for the peer to fetch, into memory that
// the peer has advertised, or as Data. It returns when none of b is exposed or in use any
// more. The caller must hold writeMu.
func (z *zeroCopy) write(b []byte) (n int, err error) {
	var pin runtime.Pinner
	pin.Pin(&b[0])
	defer pin.Unpin()
	c := z.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		z.takeUp.set(time.Time{})
		z.writeAnswer.set(time.Time{})
	}()
	var why error // why the call had to end when the peer did not release its memory
	for {
		err = c.cannotWriteLocked()
		if z.takeUp.expired && c.sendErr == nil {
			z.takeUp.set(time.Time{})
			c.session.Overdue()
		}
		plan := c.session.PlanWrite(len(b)-n, z.writeStateLocked())
		if plan.Moved > 0 {
			n += plan.Moved
			z.armTakeUpLocked()
		}
		switch plan.Step {
		case session.WriteInvalidate:
			c.mu.Unlock()
			c.qp.Invalidate(rdma.STag(plan.STag))
			c.mu.Lock()
		case session.WriteControl:
			c.out.flushControlReleasing()
		case session.WriteCopy:
			c.mu.Unlock()
			k, _ := c.out.send(b[n:n+plan.N], (*Conn).cannotWriteLocked) // the next turn finds its error
			c.mu.Lock()
			n += k
		case session.WriteOffer:
			n += z.offerReleasing(b[n:], plan)
		case session.WriteFill:
			n += z.fillReleasing(b[n:], plan)
		case session.WriteStall:
			c.traffic.CreditStalls++
			c.out.waitCreditReleasing()
		case session.WriteWait:
			switch {
			case c.sendErr != nil && (c.recvErr != nil || !z.mayWaitLocked(c.sendErr, &z.writeAnswer)):
				c.session.AbandonWrite()
			case c.sendErr == nil && !z.mayWaitLocked(err, &z.writeAnswer):
				why = err
				z.abortToReclaimReleasing()
			default:
				c.poll.waitReleasing()
			}
		case session.WriteDone:
			if n == len(b) {
				err = nil
			}
			return n, err
		case session.WriteLost:
			if why != nil {
				err = why
			}
			return n, err
		}
	}
}

func (z *zeroCopy) writeStateLocked() session.WriteState {
	switch {
	case z.conn.sendErr != nil:
		return session.WriteBroken
	case z.conn.cannotWriteLocked() != nil:
		return session.WriteStops
	}
	return session.WriteGoesOn
}

// armTakeUpLocked gives the peer some time from now to fetch some of what is advertised.
func (z *zeroCopy) armTakeUpLocked() {
	if z.conn.session.Offering() {
		z.takeUp.set(time.Now().Add(takeUpTime))
	} else {
		z.takeUp.set(time.Time{})
	}
}

// offerReleasing advertises what the plan says of rest, the bytes of the Write that are not
// through, and returns how many of them were sent with the advertisement. If the plan does
// not hold any more when the memory is registered, it does nothing. In a bubble, where the time
// after which an advertisement is withdrawn does not pass, it has the rest sent as Data.
func (z *zeroCopy) offerReleasing(rest []byte, plan session.WritePlan) (rode int) {
	c := z.conn
	if bubble.Inside() {
		c.session.CannotOffer()
		return 0
	}
	c.mu.Unlock()
	part := rest[plan.Skip:][:plan.N]
	region, err := c.qp.Register(part, rdma.RemoteRead)
	c.out.mu.Lock()
	c.mu.Lock()
	sent := false
	if err != nil {
		c.session.CannotOffer()
	} else if c.cannotWriteLocked() == nil {
		rode, sent = z.postOfferReleasing(part, plan, region)
	}
	c.mu.Unlock()
	if err == nil && !sent {
		c.qp.Invalidate(region.STag)
	}
	c.out.unlock()
	busy := c.qp.Busy()
	c.mu.Lock()
	switch {
	case !busy:
	case sent || c.cannotWriteLocked() != nil:
		c.qp.Flush()
	default:
		c.out.waitRoomReleasing()
	}
	return rode
}

// postOfferReleasing sends the SrcAvail for part, and returns how many of its bytes were sent
// with it, and whether it was sent. The caller must hold out.mu too.
func (z *zeroCopy) postOfferReleasing(part []byte, plan session.WritePlan, region rdma.Region) (rode int, sent bool) {
	c := z.conn
	b := newBatch()
	defer freeBatch(b)
	if !c.session.Offer(b, part, plan, uint32(region.STag), region.VA) {
		return 0, false
	}
	c.mu.Unlock()
	taken, err := c.qp.PostSend(b.WRs)
	c.mu.Lock()
	rode, due := c.session.Sent(b, taken)
	if due {
		c.out.due.Store(true)
	}
	if taken == 0 {
		if err != nil {
			c.sendFailedLocked(err)
		}
		return 0, false
	}
	if rode > 0 {
		c.traffic.BcopySent.Add(stats.Counts{Messages: 1, Bytes: uint64(rode)})
	}
	z.armTakeUpLocked()
	return rode, true
}

// fillReleasing writes b into the memory that the peer has advertised, for as long as the plan
// says so. It returns how many bytes are through when none is in use any more: 0 if the
// connection had to be aborted for that.
func (z *zeroCopy) fillReleasing(b []byte, plan session.WritePlan) (n int) {
	c := z.conn
	z.fills++
	fill := z.fills // if the device refuses a part, this tells it that the next try is the same
	for ; plan.Step == session.WriteFill; plan = c.session.PlanWrite(len(b)-n, z.writeStateLocked()) {
		if z.writes >= fillAhead {
			if !z.awaitWritesReleasing(fillAhead - 1) {
				return 0
			}
			continue
		}
		part := b[n:][:min(plan.N, fillPart)]
		c.session.Fill(plan)
		z.writes++
		c.mu.Unlock()
		c.out.mu.Lock()
		err := c.qp.PostWrite(rdma.WriteWR{ID: fill, Local: part, STag: rdma.STag(plan.STag), VA: plan.VA})
		c.out.unlock()
		c.mu.Lock()
		if err == nil {
			n += len(part)
			c.session.Filled(len(part))
			continue
		}
		z.writes--
		switch {
		case err == rdma.ErrNoRoom && !z.mayWaitLocked(c.cannotWriteLocked(), &z.writeAnswer):
			z.abortToReclaimReleasing()
		case err == rdma.ErrNoRoom && c.out.waitRoomReleasing() == nil:
		default:
			c.sendFailedLocked(err)
			if z.writes > 0 {
				z.abortToReclaimReleasing()
				z.writes = 0
			}
			return 0
		}
	}
	c.out.flushControlReleasing()
	if !z.awaitWritesReleasing(0) {
		return 0
	}
	return n
}

// awaitWritesReleasing waits until at most most RDMA Writes are under way. It reports false if
// the connection had to be aborted for that.
func (z *zeroCopy) awaitWritesReleasing(most int) bool {
	c := z.conn
	for z.writes > most {
		switch {
		case c.recvErr != nil || !z.mayWaitLocked(c.cannotWriteLocked(), &z.writeAnswer):
			z.abortToReclaimReleasing()
			z.writes = 0
			return false
		case c.qp.Busy() && c.sendErr == nil:
			c.out.waitRoomReleasing()
		default:
			c.poll.waitReleasing()
		}
	}
	return true
}
