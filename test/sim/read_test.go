package sim

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
	case c.got == 0 && e.bk.Bytes() > 0:
		n := 0
		for n < len(c.b) && e.bk.Bytes() > 0 {
			n += e.copyIn(c.b[n:])
		}
		return e.endRead(c, n)
	}
	rest := len(c.b) - c.got
	if e.bk.Bytes() == 0 && e.snk.Holding() && rest > 0 && !c.stop {
		if !e.snk.Suits(rest) && c.got == 0 {
			_, _, before := e.snk.Due()
			e.snk.Decline()
			_, _, after := e.snk.Due()
			if after && !before {
				e.w.stats.declined++
			}
			e.wait(c)
			return after && !before
		}
		if n, stag, va, ok := e.snk.Fetch(min(rest, e.w.part)); ok {
			if seq, held := e.snk.Held(); held {
				e.w.failf("%s: RDMA Read behind SrcAvailCancel %d", e.name, seq)
			}
			if e.dev.read(c.b[c.got:][:n], stag, va) {
				e.w.stats.fetched++
				e.w.tracef("%s: fetches %d bytes of STag %#x", e.name, n, stag)
				c.got += n
				c.flying++
				return true
			}
			e.w.stats.unfetched++
			e.snk.Unfetch(n)
			return false
		}
	}
	switch {
	case c.flying > 0:
		return false
	case c.got > 0:
		return e.endRead(c, c.got)
	case c.stop, e.bk.Ended() && !e.snk.Holding():
		return e.endRead(c, 0)
	case !e.snk.Holding() && e.snk.MayOffer(len(c.b), e.bk.Size()):
		var va uint64
		c.stag, va = e.dev.register(c.b, false)
		c.offered = true
		e.snk.Offer(c.stag, va, len(c.b))
		e.wait(c)
		return true
	}
	e.wait(c)
	return false
}

// wait tells that the Read is about to wait.
func (e *end) wait(c *read) {
	if !c.waits {
		c.waits = true
		e.snk.Reading(len(c.b), e.bk.Size())
	}
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
