package sim

import "github.com/gosdp/gosdp/wire"

// The programs: what they call at each end is random.

// startWrite begins a Write, if none is under way and the stream has not ended.
func (e *end) startWrite(n int) bool {
	if e.writing != nil || e.s.WritesEnded() || n == 0 {
		return false
	}
	if e.w.turns && (e.w.turn != e.dir || e.came < e.peer.wrote) && !e.w.chance(100) {
		return false // it waits for a request, or for an answer
	}
	e.w.turn = e.peer.dir
	b := make([]byte, n)
	for i := range b {
		b[i] = content(e.dir, e.wrote+i)
	}
	e.writing = &write{b: b}
	planned := e.s.BeginWrite(n)
	e.w.tracef("%s: Write of %d bytes, planned %v", e.name, n, planned)
	return true
}

// endWrite has the Write return.
func (e *end) endWrite(c *write) bool {
	e.w.tracef("%s: Write returns %d of %d", e.name, c.done, len(c.b))
	if n := e.dev.exposed(true); n > 0 {
		e.w.failf("%s: %d advertisements have outlived their Write", e.name, n)
	}
	if !c.stop && c.done != len(c.b) {
		e.w.failf("%s: Write returned %d of %d bytes", e.name, c.done, len(c.b))
	}
	if c.stop && c.done < len(c.b) {
		e.w.stats.cutWrites++
	}
	e.wrote += c.done
	clear(c.b) // the program's again
	e.writing = nil
	return true
}

// startRead begins a Read, if none is under way and there is more to come.
func (e *end) startRead(n int) bool {
	if e.reading != nil || e.readClosed || n == 0 || e.s.PeerEnded() && e.s.Unread() == 0 && !e.snk.Holding() {
		return false
	}
	e.reading = &read{b: make([]byte, n)}
	e.w.tracef("%s: Read of %d bytes", e.name, n)
	return true
}

// endRead has the Read return n bytes.
func (e *end) endRead(c *read, n int) bool {
	e.w.tracef("%s: Read returns %d of %d", e.name, n, len(c.b))
	e.s.ReadDone()
	if n := e.dev.exposed(false); n > 0 {
		e.w.failf("%s: %d advertisements have outlived their Read", e.name, n)
	}
	e.check(c.b[:n])
	clear(c.b)
	e.reading = nil
	return true
}

// stopWrite is a deadline or a Close.
func (e *end) stopWrite() bool {
	if e.writing == nil || e.writing.stop {
		return false
	}
	e.w.tracef("%s: the Write is to end", e.name)
	e.writing.stop = true
	return true
}

func (e *end) stopRead() bool {
	if e.reading == nil || e.reading.stop {
		return false
	}
	e.w.tracef("%s: the Read is to end", e.name)
	e.reading.stop = true
	return true
}

// overdue has the time pass in which the peer must fetch some of an advertisement.
func (e *end) overdue() bool {
	if e.writing == nil || !e.s.Offering() {
		return false
	}
	e.w.tracef("%s: %d SrcAvails are overdue", e.name, e.src.Outstanding())
	e.s.Overdue()
	return true
}

// hint is whatever else makes a Source go Pipelined, or a Sink come back from
// Buffered mode: they may at any time.
func (e *end) hint() bool {
	switch {
	case e.w.calm:
		return false
	case e.snk.Mode() == wire.ModeBuffered:
		for range 100 {
			e.snk.Reading(e.bk.Size()+1, e.bk.Size())
		}
		e.snk.Read()
		if c := e.reading; c != nil && c.waits {
			e.snk.Reading(len(c.b), e.bk.Size())
		}
	case e.src.Mode() == wire.ModeCombined:
		e.src.Hint()
		e.src.Hint()
	default:
		return false
	}
	return true
}

// idle has the peer's private buffers shrink again.
func (e *end) idle() bool {
	if !e.s.Grown() {
		return false
	}
	e.s.Idle()
	return true
}

// closeWrite ends the stream that this end sends.
func (e *end) closeWrite() bool {
	if e.writing != nil || !e.s.EndWrites() {
		return false
	}
	e.w.tracef("%s: CloseWrite", e.name)
	return true
}

// closeRead has what comes from now on thrown away, as Close does while it waits for its DisConn to
// be sent.
func (e *end) closeRead() bool {
	if e.readClosed {
		return false
	}
	e.w.tracef("%s: reads no more", e.name)
	e.s.RefuseAdverts()
	if e.stopRead(); e.reading != nil {
		return false
	}
	e.readClosed = true
	for e.s.Unread() > 0 {
		e.check(e.s.Head())
		if owner := e.s.Consume(len(e.s.Head())); owner != nil {
			owner.Release()
		}
	}
	return true
}

// sizes of Writes and Reads: those where something begins or ends, and any.
func (w *world) size(e *end) int {
	sizes := [...]int{
		1, 2, zcopyRide - 1, zcopyRide, zcopyRide + 1, w.threshold, w.threshold + 1, w.threshold + 2,
		e.bk.Size(), e.bk.Size() + 1, e.bs.Payload(), e.bs.Payload() + 1,
		w.piece - 1, w.piece, w.piece + 1, 3 * w.piece, 10 * w.piece,
	}
	n := sizes[w.r.IntN(len(sizes))]
	switch w.r.IntN(w.habit) {
	case 0:
		n = 1 + w.r.IntN(w.largest)
	case 1:
		n += w.r.IntN(5)
	}
	return min(max(n, 1), w.largest)
}
