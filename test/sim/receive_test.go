package sim

import (
	"github.com/gosdp/gosdp/wire"
)

// poll handles one completion.
func (e *end) poll() bool {
	if len(e.dev.cq) == 0 {
		return false
	}
	c := e.dev.cq[0]
	e.dev.cq = e.dev.cq[1:]
	switch c.kind {
	case itemWrite:
		e.writing.flying--
	case itemReadResponse:
		e.s.Fetched(len(c.bytes))
		e.reading.flying--
	case itemSend:
		e.receive(c)
	}
	return true
}

// receive handles a message.
func (e *end) receive(c completion) {
	var m wire.Message
	if err := m.Parse(c.bytes); err != nil {
		e.w.failf("%s: %v", e.name, err)
	}
	e.w.tracef("%s: gets %v %d", e.name, m.MID, m.MSeq)
	if e.posted--; e.posted < 0 {
		e.w.failf("%s: no private buffer for %v", e.name, m.MID)
	}
	if m.MID == wire.MIDSrcAvailCancel {
		e.cancelled, e.cancelReads = m.MSeq, e.dev.readsPosted
	}
	offered := e.src.Outstanding()
	it, err := e.s.Receive(c.bytes, e, c.invalidated, e.readClosed)
	if err != nil {
		e.w.failf("%s: %v: %v", e.name, m.MID, err)
	}
	if it.Resize != 0 {
		e.s.Resize(it.Resize)
		e.s.Older(pick(e.w, 0, e.posted))
	}
	if !it.Kept {
		e.check(m.Payload)
		e.posted++
	}
	if _, held := e.snk.Held(); held && m.MID == wire.MIDSrcAvailCancel {
		e.w.stats.held++
	}
	if m.MID == wire.MIDSinkAvail && offered > 0 && e.src.Outstanding() == 0 {
		e.w.stats.crossed++
	}
}

// check compares bytes that have arrived with the next ones of the stream.
func (e *end) check(b []byte) {
	for i, got := range b {
		if want := content(e.peer.dir, e.came+i); got != want {
			e.w.failf("%s: byte %d is %#x, want %#x", e.name, e.came+i, got, want)
		}
	}
	e.came += len(b)
}

// content is the byte at a position of a stream.
func content(dir, position int) byte {
	return byte(uint32(2*position+dir) * 2654435761 >> 24)
}
