package gate

import "fmt"

// reader emits the states that R can bring about in one step, and those after a deadline or an error.
func (m *model) reader(s state, e emit) {
	t := s
	mustRecall := (s.leave || s.deadR) && (s.in == tcp || s.in == ring) && !s.ended && s.attached
	deliver := func(v uint8) {
		if v != t.got && t.bad == "" {
			t.bad = fmt.Sprintf("byte %d instead of %d", v, t.got)
		}
		t.got++
	}
	take := func(pc uint8, limit uint8) bool { // from TCP
		n := min(s.tcp.len(), limit)
		for k := uint8(1); k <= n; k++ {
			t = s
			for range k {
				var v uint8
				v, t.tcp = t.tcp.pop()
				deliver(v)
				t.cons++
			}
			t.rpc = pc
			e(t, step, fmt.Sprint("R: reads ", k, " from TCP"))
		}
		t = s
		return n > 0
	}
	readEnd := func() { // read(2) has found the end
		if t.rst && !t.rstRead {
			t.rstRead, t.rstHeld = true, true
		}
	}
	over := func(what string) {
		t.rpc, t.rEnd = rOver, true
		switch {
		case t.got < t.returned && !t.rst:
			t.bad = fmt.Sprintf("an end after %d of %d bytes", t.got, t.returned)
		case !s.wDead && !s.closing:
			t.bad = "an end while the writer lives"
		case t.rstRead && !t.rstHeld:
			t.bad = "a reset is an end"
		}
		e(t, step, what)
	}
	switch s.rpc {
	case rIdle:
		t.rpc = rTop
		e(t, step, "R: Read")
		t = s
		if mustRecall {
			t.rpc = rTop
			e(t, timer, "R: visit")
		}
	case rTop:
		switch {
		case !s.attached:
			take(rIdle, m.read)
			if s.tcp == 0 && s.tcpEnd {
				over("R: end of TCP")
				return
			}
			t.attached = true // at any time, also beside a Read that waits
			e(t, step, "R: attaches")
			return
		case mustRecall:
			t.with(func(g *Gate) {
				switch g.Recall() {
				case Unmoved:
					t.in = plain
				case Returning:
					t.in = back
				case Ended:
					t.ended = true
				}
			})
			t.rpc = rRecalled
			if m.without == "wake after Recall" {
				t.rpc = rTop
			}
			e(t, step, "R: Recall")
			return
		}
		t.rpc = [...]uint8{tcp: rRead, ring: rRing, back: rBack, plain: rRead}[s.in]
		e(t, step, "R: top")
	case rRecalled:
		if s.full {
			t.full, t.bellW = false, true
		}
		t.rpc = rTop
		e(t, step, "R: wakes W")
	case rRead:
		pc := rIdle
		if s.in == tcp {
			pc = rConsent
		}
		if m.without == "load after read" {
			t.seen = s.gate
			s.seen = s.gate
		}
		if take(pc, m.read) {
			return
		}
		if t.err = s.tcpEnd; t.err {
			readEnd()
		}
		switch {
		case s.in == tcp:
			t.rpc = rEmpty
			e(t, step, "R: TCP is empty")
		case s.tcpEnd:
			over("R: end of TCP")
		}
	case rConsent:
		t.with((*Gate).Consent)
		t.rpc = rIdle
		e(t, step, "R: Consent, and returns")
	case rEmpty:
		w := s.word()
		if m.without == "load after read" {
			w = Word(s.seen)
		}
		if w.Moved() && uint64(s.cons) >= w.Sent() {
			if m.without == "the end is kept" {
				t.rstHeld = false
			}
			t.in, t.rpc = ring, rTop
			e(t, step, "R: enters the ring")
			return
		}
		if m.without == "bytes before the ring" && w.Moved() {
			t.in, t.rpc = ring, rTop
			e(t, step, "R: enters the ring too early")
			return
		}
		if s.err {
			if w.Moved() && !s.rst {
				t.bad = "a hole"
			}
			over("R: end of TCP")
			return
		}
		switch w.Empty(uint64(s.cons)) {
		case Enter:
			panic("above")
		case Wait:
			t.rpc = rWait
		case Ask:
			t.rpc = rAsk
		case Park:
			t.rpc = rDrain
		}
		t.seen = s.gate
		e(t, step, "R: Empty")
	case rAsk:
		t.with((*Gate).Consent)
		t.rpc = rTop
		e(t, step, "R: Consent")
	case rWait:
		if s.tcp != 0 || s.tcpEnd {
			t.rpc = rTop
			e(t, step, "R: TCP is readable")
			return
		}
		if mustRecall && !s.word().Moved() { // a visit takes a direction whose Read waits on TCP
			t.rpc = rTop
			e(t, timer, "R: visit beside a Read on TCP")
		}
	case rRing:
		w := s.word()
		t.seen, t.seenHead, t.rpc = s.gate, s.head, rTake
		_ = w
		e(t, step, "R: loads the gate")
	case rTake:
		n := s.head - s.tail
		if m.without == "gate before ring" {
			n = s.seenHead - s.tail
		}
		switch {
		case n > 0:
			deliver(s.ring.at(s.tail))
			t.tail, t.rpc = s.tail+1, rIdle
			if s.full && m.without != "wake for room" {
				t.full, t.bellW = false, true
			}
			e(t, step, "R: takes from the ring")
		case Word(s.seen).Left() || m.without == "gate before ring" && s.word().Left():
			t.in, t.rpc = plain, rTop
			e(t, step, "R: leaves the ring")
		default:
			t.rpc = rDrain
			e(t, step, "R: the ring is empty")
		}
	case rBack:
		if take(rIdle, m.read) {
			return
		}
		if t.err = s.tcpEnd; t.err {
			readEnd()
		}
		t.rpc = rReturning
		e(t, step, "R: TCP is empty, while the writer comes home")
	case rReturning:
		switch {
		case s.word().Left():
			if m.without == "the end is kept" {
				t.rstHeld = false
			}
			t.in, t.rpc = plain, rTop
			e(t, step, "R: the writer is home")
		case !s.err:
			t.rpc = rWaitBack
			e(t, step, "R: waits on TCP for the rest")
		case uint64(s.cons) < s.word().Sent():
			if !s.rst {
				t.bad = "a hole"
			}
			over("R: a hole")
		default:
			t.rest, t.rpc = s.tail+s.cons-uint8(s.word().Sent()), rRest
			if m.without == "rest less what TCP had" {
				t.rest = s.tail
			}
			e(t, step, "R: TCP ends before the ring's rest")
		}
	case rWaitBack:
		if s.tcp != 0 || s.tcpEnd {
			t.rpc = rBack
			e(t, step, "R: TCP is readable")
			return
		}
		if s.word().Left() {
			t.in, t.rpc = plain, rTop
			e(t, timer, "R: visit finds the writer home")
		}
	case rRest:
		if m.without == "the rest before the end" && s.rest < s.head {
			over("R: end of TCP, before the ring's rest")
			return
		}
		if s.rest < s.head && m.without != "rest of the ring" {
			deliver(s.ring.at(s.rest))
			t.rest++
			e(t, step, "R: takes the ring's rest")
			return
		}
		over("R: end of TCP, after the ring's rest")
	case rDrain:
		t.bellR, t.rpc = false, rArm
		t.deadR = s.deadR || s.bellREnd
		e(t, step, "R: drains the doorbell")
	case rArm:
		t.idle, t.rpc = true, rLook
		e(t, step, "R: idle = 1")
	case rLook:
		t.rpc = rSleep
		news := s.gate != s.seen || s.in == ring && s.head != s.tail
		if m.without == "reader looks again" {
			news = false
		}
		if news || mustRecall {
			t.idle, t.rpc = false, rTop
		}
		e(t, step, "R: looks again")
	case rSleep:
		if s.bellR || s.bellREnd && !s.deadR {
			t.idle, t.rpc = false, rTop
			t.deadR = s.deadR || s.bellREnd
			e(t, step, "R: wakes")
		}
	}
}
