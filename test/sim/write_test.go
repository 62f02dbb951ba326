package sim

import "github.com/gosdp/gosdp/internal/session"

// write is a call of Write.
type write struct {
	b      []byte
	done   int  // bytes that are through
	stop   bool // the call is to end
	flying int  // RDMA Writes that have not completed
}

// stepWrite carries out the next step of the Write.
func (e *end) stepWrite() bool {
	c := e.writing
	if c == nil || e.batch.open {
		return false
	}
	state := session.WriteGoesOn
	if c.stop {
		state = session.WriteStops
	}
	p := e.s.PlanWrite(len(c.b)-c.done, state)
	c.done += p.Moved
	switch p.Step {
	case session.WriteDone:
		return c.flying == 0 && e.endWrite(c)
	case session.WriteControl:
		return e.control()
	case session.WriteInvalidate:
		e.dev.invalidate(p.STag)
		return true
	case session.WriteCopy:
		return e.copy(c, p.N) || p.Moved > 0
	case session.WriteOffer:
		return e.offer(c, p)
	case session.WriteFill:
		e.fill(c, p)
		return true
	}
	return p.Moved > 0
}

// copy sends some of the next n bytes.
func (e *end) copy(c *write, n int) bool {
	room := min(e.s.Room(), 4)
	if room == 0 {
		return false
	}
	e.s.Data(&e.messages, c.b[c.done:][:n], room, e.s.Payload())
	gone := e.room(len(e.messages.WRs))
	e.post(gone)
	e.batch = batch{open: true, gone: gone}
	if e.messages.Carries() {
		e.sent()
		e.checkAdverts()
	} else {
		e.begin(e.batch)
	}
	return true
}

// offer sends a SrcAvail.
func (e *end) offer(c *write, p session.WritePlan) bool {
	b := c.b[c.done+p.Skip:][:p.N]
	stag, va := e.dev.register(b, true)
	if !e.s.Offer(&e.messages, b, p, stag, va) {
		e.w.failf("%s: a Write must not do what its plan says", e.name)
	}
	e.checkAdverts()
	gone := 1
	if e.messages.Bytes() > 0 {
		gone = e.room(1)
	}
	e.post(gone)
	e.begin(batch{gone: gone, offered: stag})
	return true
}

// fill posts an RDMA Write.
func (e *end) fill(c *write, p session.WritePlan) {
	n := p.N
	if e.w.chance(3) {
		n = 1 + e.w.r.IntN(n)
	}
	e.w.tracef("%s: fills %d bytes of STag %#x", e.name, n, p.STag)
	e.s.Fill(p)
	e.dev.write(c.b[c.done:][:n], p.STag, p.VA)
	c.flying++
	c.done += n
	e.s.Filled(n)
}
