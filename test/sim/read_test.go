package sim

import "github.com/gosdp/gosdp/internal/session"

// read is a call of Read.
type read struct {
	b       []byte
	got     int // bytes fetched
	flying  int // RDMA Reads that have not completed
	stag    uint32
	offered bool
	waits   bool
	stop    bool
}

// stepRead has the Read do the next thing that it can do.
func (e *end) stepRead() bool {
	c := e.reading
	switch {
	case c == nil || c.flying > 0 && e.bk.Bytes() > 0:
		return false
	case c.offered:
		return e.offered(c)
	case c.got > 0: // it fetches
		switch {
		case !c.stop && e.bk.Bytes() == 0 && len(c.b) > c.got && e.fetch(c):
			return true
		case c.flying > 0:
			return false
		}
		return e.endRead(c, c.got)
	case e.bk.Bytes() == 0 && (c.stop || e.bk.Ended()):
		return e.endRead(c, 0)
	}
	switch e.s.PlanRead(len(c.b), false) {
	case session.ReadCopy:
		n := 0
		for n < len(c.b) && e.bk.Bytes() > 0 {
			n += e.copyIn(c.b[n:])
		}
		return e.endRead(c, n)
	case session.ReadFetch:
		return e.fetch(c)
	case session.ReadDecline:
		e.w.stats.declined++
		return true
	case session.ReadAdvertise:
		var va uint64
		c.stag, va = e.dev.register(c.b, false)
		c.waits, c.offered = true, true
		e.snk.Offer(c.stag, va, len(c.b))
		return true
	}
	c.waits = true
	return false
}

// fetch posts an RDMA Read.
func (e *end) fetch(c *read) bool {
	n, stag, va, ok := e.snk.Fetch(min(len(c.b)-c.got, e.w.part))
	if !ok {
		return false
	}
	if seq, held := e.snk.Held(); held {
		e.w.failf("%s: RDMA Read after SrcAvailCancel %d", e.name, seq)
	}
	if !e.dev.read(c.b[c.got:][:n], stag, va) {
		e.w.stats.unfetched++
		e.snk.Unfetch(n)
		return false
	}
	e.w.stats.fetched++
	e.w.tracef("%s: fetches %d bytes of STag %#x", e.name, n, stag)
	c.got += n
	c.flying++
	return true
}

// offered has a Read wait for its SinkAvail to end.
func (e *end) offered(c *read) bool {
	n, over := e.snk.Outcome()
	if !over {
		if c.stop {
			e.snk.Withdraw()
		}
		return false
	}
	e.dev.invalidate(c.stag)
	c.offered = false
	switch {
	case n > 0:
		e.w.stats.filled++
		return e.endRead(c, n)
	case e.bk.Bytes() > 0:
		e.w.stats.usedUp++
		return e.endRead(c, e.copyIn(c.b))
	}
	return true
}

// copyIn copies the payload of one message.
func (e *end) copyIn(b []byte) int {
	n := copy(b, e.bk.Head())
	if owner := e.bk.Consume(n); owner != nil {
		owner.Release()
	}
	return n
}
