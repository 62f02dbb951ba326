package sim

import (
	"github.com/gosdp/gosdp/wire"
	"github.com/gosdp/gosdp/zcopy"
)

// write is a call of Write.
type write struct {
	b       []byte
	done    int  // bytes that are through
	planned bool // by zcopy
	stop    bool // the call is to end
	fill    []byte
	into    wire.Advert // for fill
	filled  int         // bytes of it that were posted
	flying  int         // RDMA Writes that have not completed
}

// collect takes in what has become of a Write's advertisements.
func (e *end) collect() {
	n := e.src.Moved()
	if n > 0 {
		if e.writing == nil {
			e.w.failf("%s: %d bytes were fetched of no Write", e.name, n)
		}
		e.writing.done += n
	}
	for stag, ok := e.src.Ended(); ok; stag, ok = e.src.Ended() {
		e.dev.invalidate(stag)
	}
}

// stepWrite has the Write do the next thing that it can do.
func (e *end) stepWrite() bool {
	c := e.writing
	if c == nil || e.batch.open {
		return false
	}
	e.collect()
	if e.s.Preceded() {
		return e.control()
	}
	if len(c.fill) > 0 {
		if c.filled > 0 && (c.stop || e.src.Unwanted()) {
			c.fill = nil
			e.src.Filled(c.filled)
			return true
		}
		e.fill(c)
		return true
	}
	if !c.planned {
		if c.stop || c.done == len(c.b) {
			return e.endWrite(c)
		}
		return e.copy(c, len(c.b)-c.done)
	}
	p := e.src.Next(len(c.b)-c.done, c.stop)
	switch p.Step {
	case zcopy.Done:
		if c.flying == 0 {
			return e.endWrite(c)
		}
	case zcopy.Copy:
		return e.copy(c, p.N)
	case zcopy.Offer:
		return e.offer(c, p)
	case zcopy.Fill:
		e.w.tracef("%s: fills %d bytes of STag %#x", e.name, p.N, p.Advert.STag)
		e.src.Filling(p)
		c.fill, c.into, c.filled = c.b[c.done:][:p.N], p.Advert, 0
		e.fill(c)
		return true
	}
	return false
}

// copy sends some of the next n bytes.
func (e *end) copy(c *write, n int) bool {
	room := min(e.s.Room(), 4)
	if room == 0 {
		return false
	}
	e.s.Data(&e.messages, c.b[c.done:][:n], room, e.bs.Payload())
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
func (e *end) offer(c *write, p zcopy.Plan) bool {
	if !e.s.MayOffer(&p) {
		return false
	}
	b := c.b[c.done+p.Skip:][:p.N]
	stag, va := e.dev.register(b, true)
	e.s.Offer(&e.messages, b, p, stag, va)
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
func (e *end) fill(c *write) {
	n := len(c.fill)
	if e.w.chance(3) {
		n = 1 + e.w.r.IntN(n)
	}
	e.dev.write(c.fill[:n], c.into.STag, c.into.VA)
	c.flying++
	c.done += n
	c.filled += n
	c.fill = c.fill[n:]
	c.into.VA += uint64(n)
	if len(c.fill) == 0 {
		e.src.Filled(c.filled)
	}
}
