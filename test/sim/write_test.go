package sim

import (
	"github.com/gosdp/gosdp/credits"
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
	if _, _, ok := e.src.Due(); ok {
		return e.control() // nothing with payload overtakes it
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

// copy sends some of the next n bytes as Data, the last of them in a SinkAvail if
// one is due.
func (e *end) copy(c *write, n int) bool {
	room := min(e.acct.Room(), 4)
	if room == 0 {
		return false
	}
	if e.w.resizes {
		e.bs.Wrote(n)
	}
	b := c.b[c.done:][:n]
	if advert, ok := e.snk.Carry(); ok && n <= e.bs.Size()-wire.MaxHeaderLen {
		m := wire.Message{Header: wire.Header{MID: wire.MIDSinkAvail}, Advert: advert, Payload: b}
		e.stamp(0, &m)
		e.src.Sending(1, n, false)
		gone := e.room(1)
		if gone == 1 {
			e.post(&m, 0)
			e.snk.Carried()
			e.checkAdverts()
		}
		e.batch = batch{open: true, gone: gone, payload: 1, bytes: gone * n}
		return e.sent()
	}
	var ms []wire.Message
	for bytes := 0; len(ms) < room && bytes < n; {
		k := min(e.bs.Payload(), n-bytes)
		ms = append(ms, wire.Message{Header: wire.Header{MID: wire.MIDData}, Payload: b[bytes:][:k]})
		e.stamp(len(ms)-1, &ms[len(ms)-1])
		bytes += k
	}
	e.src.Sending(len(ms), length(ms), false)
	gone := e.room(len(ms))
	for i := range ms[:gone] {
		e.post(&ms[i], 0)
	}
	e.begin(batch{gone: gone, payload: len(ms), bytes: length(ms[:gone])})
	return true
}

func length(ms []wire.Message) (n int) {
	for i := range ms {
		n += len(ms[i].Payload)
	}
	return n
}

// offer sends a SrcAvail.
func (e *end) offer(c *write, p zcopy.Plan) bool {
	p.Ride = min(p.Ride, e.bs.Size()-srcAvailLen)
	if p.Ride > 0 && e.acct.Room() == 0 || !e.acct.May(credits.Bare) {
		return false
	}
	b := c.b[c.done+p.Skip:][:p.N]
	stag, va := e.dev.register(b, true)
	m := wire.Message{Header: wire.Header{MID: wire.MIDSrcAvail}, Advert: wire.Advert{Len: uint32(p.N), STag: stag, VA: va}}
	n := batch{gone: 1, offered: stag}
	e.stamp(0, &m)
	if p.Ride > 0 {
		m.Payload = b[:p.Ride]
		n.payload, n.gone = 1, e.room(1)
		n.bytes = n.gone * p.Ride
		e.src.Sending(1, p.Ride, true)
	}
	e.src.Offered(p, stag)
	e.checkAdverts()
	if n.gone == 1 {
		e.post(&m, 0)
	}
	e.begin(n)
	return true
}

const srcAvailLen = wire.HeaderLen + 16

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
