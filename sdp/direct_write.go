package sdp

import (
	"runtime"
	"time"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/zcopy"
)

// writeDirect writes b as the Source plans it: advertised for the peer to fetch,
// into memory that the peer has advertised, or as Data. It returns when nothing
// of b is exposed or in use any more. Called with writeMu held.
func (c *conn) writeDirect(b []byte) (n int, err error) {
	var pin runtime.Pinner
	pin.Pin(&b[0])
	defer pin.Unpin()
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		c.moves.overdue.set(time.Time{})
		c.moves.giveUpW.set(time.Time{})
	}()
	c.session.ZSource.Begin()
	var why error // the call was to end when the peer did not let go
	for {
		if moved := c.session.ZSource.Moved(); moved > 0 {
			n += moved
			c.expectTakeUp()
		}
		if c.invalidateEnded() {
			continue
		}
		err = c.cannotWrite()
		if c.sendErr != nil {
			if n == len(b) && c.session.ZSource.Next(0, false).Step == zcopy.Done {
				return n, nil // the peer had all of it before it went
			}
			if c.recvErr == nil && c.session.ZSource.Outstanding() > 0 && c.patient(c.sendErr, &c.moves.giveUpW) {
				c.await() // what it said of our memory before that may still come
				continue
			}
			c.session.ZSource.Abandon()
			c.invalidateEnded()
			if why != nil {
				err = why
			}
			return n, err
		}
		if c.moves.overdue.expired {
			c.moves.overdue.set(time.Time{})
			c.session.ZSource.Withdraw()
		}
		plan := c.session.ZSource.Next(len(b)-n, err != nil)
		if c.session.Preceded() { // it goes before anything else
			if c.session.MayControl() {
				c.say()
				continue
			}
			plan.Step = zcopy.Wait
		}
		switch plan.Step {
		case zcopy.Done:
			if n == len(b) {
				err = nil
			}
			return n, err
		case zcopy.Copy:
			c.mu.Unlock()
			k, _ := c.send(b[n:n+plan.N], (*conn).cannotWrite) // whose error the next look finds
			c.mu.Lock()
			n += k
		case zcopy.Offer:
			n += c.offer(b[n:], plan)
		case zcopy.Fill:
			n += c.fill(b[n:n+plan.N], plan)
		case zcopy.Wait:
			if !c.patient(err, &c.moves.giveUpW) {
				why = err
				c.getBack()
				continue
			}
			c.await()
		}
	}
}

// expectTakeUp gives the peer time to fetch something of what is advertised.
// Called with mu held.
func (c *conn) expectTakeUp() {
	if c.session.ZSource.Outstanding() > 0 {
		c.moves.overdue.set(time.Now().Add(takeUpTime))
	} else {
		c.moves.overdue.set(time.Time{})
	}
}

// invalidateEnded ends the exposure of what is no longer advertised, and reports
// whether there was anything. Called and returns with mu held; lets go of it
// meanwhile if so.
func (c *conn) invalidateEnded() (any bool) {
	for {
		stag, ok := c.session.ZSource.Ended()
		if !ok {
			return any
		}
		any = true
		c.mu.Unlock()
		c.qp.Invalidate(rdma.STag(stag))
		c.mu.Lock()
	}
}

// offer advertises what the plan says of rest, the bytes of the Write that are
// not through, and returns how many of them rode along. If it cannot now, it
// waits for what it lacks, and has done nothing. Called and returns with mu held;
// lets go of it meanwhile.
func (c *conn) offer(rest []byte, plan zcopy.Plan) (rode int) {
	if !c.session.MayOffer(&plan) {
		c.traffic.CreditStalls++
		c.starved = true
		c.watchLocked()
		c.await()
		c.starved = false
		return 0
	}
	c.mu.Unlock()
	part := rest[plan.Skip:][:plan.N]
	region, err := c.qp.Register(part, rdma.RemoteRead)
	c.sendMu.Lock()
	c.mu.Lock()
	gone := false
	switch {
	case err != nil:
		c.session.ZSource.Plain()
	case c.cannotWrite() == nil && c.session.MayOffer(&plan) && !c.session.Preceded() && c.session.ZSource.Next(len(rest), false) == plan:
		rode, gone = c.postOffer(part, plan, region)
	}
	c.mu.Unlock()
	if err == nil && !gone {
		c.qp.Invalidate(region.STag)
	}
	c.unlockSend()
	busy := c.qp.Busy()
	c.mu.Lock()
	switch {
	case !busy:
	case gone || c.cannotWrite() != nil:
		c.qp.Flush()
	default:
		c.waitRoom()
	}
	return rode
}

// postOffer sends the SrcAvail for part, and returns how many of its bytes went
// with it, and whether it went. Called with sendMu and mu held; lets go of mu
// meanwhile.
func (c *conn) postOffer(part []byte, plan zcopy.Plan, region rdma.Region) (rode int, gone bool) {
	b := newBatch()
	defer freeBatch(b)
	c.session.Offer(b, part, plan, uint32(region.STag), region.VA)
	c.mu.Unlock()
	taken, err := c.qp.PostSend(b.WRs)
	c.mu.Lock()
	rode, due := c.session.Sent(b, taken)
	if due {
		c.due.Store(true)
	}
	if taken == 0 {
		if err != nil {
			c.sendFailed(err)
		}
		return 0, false
	}
	if rode > 0 {
		c.traffic.BcopySent.add(Counts{1, uint64(rode)})
	}
	c.expectTakeUp()
	return rode, true
}

// fill writes b into the memory that the peer has advertised, and returns how
// many bytes are through when none is in use any more: 0 if the connection had to
// be ended for that. It writes no more of them when the call is to end, or the
// peer's. Called and returns with mu held; lets go of it meanwhile.
func (c *conn) fill(b []byte, plan zcopy.Plan) (n int) {
	c.session.ZSource.Filling(plan)
	c.moves.fills++
	fill := c.moves.fills // tells the device that a part which it refuses, and is given again, is the same
	for n < len(b) && (n == 0 || c.cannotWrite() == nil && !c.session.ZSource.Unwanted()) {
		if c.moves.writes >= fillAhead {
			if !c.awaitWrites(fillAhead - 1) {
				return 0
			}
			continue
		}
		part := b[n:min(n+fillPart, len(b))]
		c.moves.writes++
		c.mu.Unlock()
		c.sendMu.Lock()
		err := c.qp.PostWrite(rdma.WriteWR{
			ID: fill, Local: part, STag: rdma.STag(plan.Advert.STag), VA: plan.Advert.VA + uint64(n),
		})
		c.unlockSend()
		c.mu.Lock()
		if err == nil {
			n += len(part)
			continue
		}
		c.moves.writes--
		switch {
		case err == rdma.ErrNoRoom && !c.patient(c.cannotWrite(), &c.moves.giveUpW):
			c.getBack()
		case err == rdma.ErrNoRoom && c.waitRoom() == nil:
		default:
			c.sendFailed(err)
			if c.moves.writes > 0 {
				c.getBack()
				c.moves.writes = 0
			}
			return 0
		}
	}
	c.session.ZSource.Filled(n)
	c.say()
	if !c.awaitWrites(0) {
		return 0
	}
	return n
}

// awaitWrites waits until no more than most RDMA Writes are under way, and
// reports whether the connection did not have to be ended for that. Called and
// returns with mu held; lets go of it meanwhile.
func (c *conn) awaitWrites(most int) bool {
	for c.moves.writes > most {
		switch {
		case c.recvErr != nil || !c.patient(c.cannotWrite(), &c.moves.giveUpW):
			c.getBack()
			c.moves.writes = 0
			return false
		case c.qp.Busy() && c.sendErr == nil:
			c.waitRoom()
		default:
			c.await()
		}
	}
	return true
}
