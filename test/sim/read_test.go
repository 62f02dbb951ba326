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

// stepRead carries out the next step of the Read.
func (e *end) stepRead() bool {
	c := e.reading
	switch {
	case c == nil:
		return false
	case c.offered:
		return e.offered(c)
	case c.flying > 0:
		return !c.stop && e.fetch(c) // as many RDMA Reads as the device takes
	case c.got > 0:
		return !c.stop && e.fetch(c) || e.endRead(c, c.got)
	case e.s.Unread() == 0 && (c.stop || e.s.PeerEnded()):
		return e.endRead(c, 0)
	}
	switch e.s.PlanRead(len(c.b), false, false) {
	case session.ReadCopy:
		n := 0
		for n < len(c.b) && e.s.Unread() > 0 {
			n += e.copyIn(c.b[n:])
		}
		if e.s.PlanRead(len(c.b)-n, true, false) == session.ReadFetch {
			e.check(c.b[:n]) // a Read of what was copied, and another of the rest
			c.b = c.b[n:]
			return e.fetch(c)
		}
		return e.endRead(c, n)
	case session.ReadMessage:
		e.w.stats.usedUp++
		return e.endRead(c, e.copyIn(c.b))
	case session.ReadFetch:
		return e.fetch(c)
	case session.ReadControl:
		e.w.stats.declined++
		return true
	case session.ReadAdvertise:
		var va uint64
		c.stag, va = e.dev.register(c.b, false)
		c.waits, c.offered = true, true
		if !e.s.Advertise(c.stag, va, len(c.b)) {
			e.w.failf("%s: a Read must not do what its plan says", e.name)
		}
		return true
	}
	c.waits = true
	return false
}

// fetch posts an RDMA Read.
func (e *end) fetch(c *read) bool {
	n, stag, va, ok := e.s.Fetch(min(len(c.b)-c.got, e.w.part))
	if !ok || n == 0 {
		return false
	}
	if seq, held := e.snk.Held(); held {
		e.w.failf("%s: RDMA Read after SrcAvailCancel %d", e.name, seq)
	}
	if !e.dev.read(c.b[c.got:][:n], stag, va) {
		e.w.stats.unfetched++
		e.s.Unfetch(n)
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
	n, over := e.s.AdvertEnded()
	if !over {
		return c.stop && e.s.WithdrawAdvert()
	}
	e.dev.invalidate(c.stag)
	c.offered = false
	if n > 0 {
		e.w.stats.filled++
		return e.endRead(c, n)
	}
	return true
}

// copyIn copies the payload of one message.
func (e *end) copyIn(b []byte) int {
	n := copy(b, e.s.Head())
	if owner := e.s.Consume(n); owner != nil {
		owner.Release()
	}
	return n
}
