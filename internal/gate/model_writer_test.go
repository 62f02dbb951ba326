package gate

import "fmt"

func (s *state) home() bool { return s.leave || s.deadW } // W must come home

// writer emits the states that W can bring about in one step, and those after a deadline or an error.
func (m *model) writer(s state, e emit) {
	t := s
	finish := func() { // the Write, or the visit, ends if nothing is left of it
		t.wpc = wTop
		if t.left == 0 {
			t.wpc, t.returned = wIdle, t.next
			if t.closing {
				t.wpc = wEnd
			}
		}
	}
	room := m.tcpRoom - (s.tcp.len() + s.wire.len())
	if m.deadline && s.left > 0 && (s.wpc == wRoom || s.wpc == wSleep || room == 0 && (s.wpc == wTop && s.out == plain || s.wpc == wBack)) {
		t.left, t.returned, t.full, t.wpc = 0, s.next, false, wIdle
		e(t, world, "W: deadline")
		t = s
	}
	if s.rDead && s.left > 0 && (s.wpc == wSend || s.wpc == wRoom || s.wpc == wTop && s.out == plain || s.wpc == wBack || s.wpc == wRing && s.deadW) {
		t.left, t.wDone, t.wpc = 0, true, wBye // EPIPE
		e(t, step, "W: error")
		return
	}
	send := func(from func(i uint8) uint8, n uint8) {
		for i := range n {
			t.wire = t.wire.push(from(i))
		}
		t.sent = n
	}
	switch s.wpc {
	case wIdle:
		for n := uint8(1); n <= m.write && s.next+n <= m.bytes && !s.closing; n++ {
			t.left, t.wpc = n, wTop
			e(t, step, fmt.Sprint("W: Write of ", n))
			t = s
		}
		if (m.closes || m.closeWrite) && !s.closing {
			t.closing, t.wpc = true, wEnd
			e(t, world, "W: Close")
			t = s
		}
		if s.bellWEnd && !s.deadW && !s.wDone {
			t.deadW = true
			e(t, timer, "W: visit finds the doorbell's end")
			t = s
		}
		if s.home() && !s.wDone && (s.out == tcp || s.out == ring && s.word().Recalled() || s.out == back) {
			t.wpc = wTop
			e(t, timer, "W: visit")
		}
	case wTop:
		switch {
		case s.home() && s.out == tcp:
			t.wpc = wLeave
		case s.left == 0 && (s.out == tcp || s.out == plain || s.out == ring && !s.word().Recalled()):
			finish()
		case s.out == tcp:
			if !s.joined {
				t.joined = true
				t.with(func(g *Gate) { g.Join(uint64(s.pos)) })
			}
			t.wpc = wMove
		case s.out == ring:
			t.wpc, t.back = wRing, s.tail // what "recall before position" goes by
		case s.out == back:
			t.wpc = wBack
		default:
			if room == 0 {
				return // blocks
			}
			n := min(room, s.left)
			send(func(i uint8) uint8 { return s.next + i }, n)
			t.next, t.left = s.next+n, s.left-n
			finish()
		}
		e(t, step, "W: top")
	case wMove:
		ok := false
		t.with(func(g *Gate) {
			if m.without == "consent" {
				g.Consent()
			}
			ok = g.Move()
		})
		t.wpc = wSend
		if ok {
			t.out, t.wpc = ring, wTop
		}
		e(t, step, "W: Move")
	case wSend:
		for n := uint8(0); n <= min(room, s.left); n++ {
			if n == 0 && room > 0 {
				continue
			}
			send(func(i uint8) uint8 { return s.next + i }, n)
			t.next, t.left, t.pos, t.wpc = s.next+n, s.left-n, s.pos+n, wPublish
			e(t, step, fmt.Sprint("W: send ", n))
			t = s
		}
	case wPublish:
		if m.without != "published" {
			t.with(func(g *Gate) { g.Published(int(s.sent)) })
		}
		t.wpc = wWake
		if m.without == "wake after send" {
			t.wpc = wNext
		}
		e(t, step, "W: Published")
	case wWake:
		t.wpc = wNext
		if s.idle {
			t.idle, t.wpc = false, wBell
		}
		e(t, step, "W: idle?")
	case wBell:
		t.bellR, t.wpc = true, wNext
		e(t, step, "W: rings")
	case wNext:
		switch {
		case s.closing && s.left == 0 && s.after == wFIN:
			t.wpc = wFIN
		case s.out == tcp && s.sent == 0 && s.left > 0:
			t.wpc = wRoom
		default:
			finish()
		}
		e(t, step, "W: next")
	case wRoom:
		if room > 0 || s.home() || s.bellWEnd {
			t.wpc = wTop
			e(t, step, "W: room on TCP")
		}
	case wRing:
		switch {
		case s.word().Recalled():
			t.wpc = wTail
		case s.head-s.tail < m.ringRoom:
			t.ring, t.next, t.left, t.wpc = s.ring.push(s.next), s.next+1, s.left-1, wHead
		default:
			t.wpc = wFull
		}
		e(t, step, "W: ring")
	case wTail:
		if m.without != "recall before position" {
			t.back = s.tail
		}
		t.out, t.wpc = back, wBack
		e(t, step, "W: recalled")
	case wHead:
		t.head, t.wpc, t.sent = s.head+1, wWake, 1
		e(t, step, "W: head")
	case wFull:
		t.bellW, t.full, t.wpc = false, true, wLook
		e(t, step, "W: full = 1")
	case wLook:
		t.wpc = wSleep
		if m.without != "writer looks again" && (s.head-s.tail < m.ringRoom || s.word().Recalled()) || s.deadW {
			t.full, t.wpc = false, wTop
		}
		e(t, step, "W: looks again")
	case wSleep:
		if s.bellW || s.bellWEnd {
			t.deadW = s.bellWEnd
			t.full, t.wpc = false, wTop
			e(t, step, "W: wakes")
		}
	case wBack:
		n := min(room, s.head-s.back)
		switch {
		case s.back == s.head:
			t.wpc = wHome
		case n == 0 && s.left == 0:
			t.wpc = wIdle // a visit does not wait
			if s.closing {
				t.wpc = wEnd
			}
			if t.wpc == wIdle {
				return // nothing to do before there is room
			}
		case n == 0:
			return // waits
		default:
			send(func(i uint8) uint8 { return s.ring.at(s.back + i) }, n)
			t.back = s.back + n
		}
		e(t, step, "W: sends the ring's rest")
	case wHome:
		t.with((*Gate).Home)
		t.out, t.wpc = plain, wWake
		e(t, step, "W: Home")
	case wLeave:
		t.with(func(g *Gate) { g.Leave() })
		t.out, t.wpc, t.sent = plain, wWake, 1
		e(t, step, "W: Leave")
	case wEnd:
		t.wpc, t.after = wWake, wFIN
		if s.out != plain && s.out != back {
			t.with(func(g *Gate) {
				if m.without == "Leave is refused" {
					g.Home()
				} else if g.Leave() {
					t.out = plain
				}
			})
		}
		t.wDone = true
		e(t, step, "W: Close: Leave")
	case wFIN:
		t.fin, t.wpc = true, wBye
		e(t, step, "W: FIN")
	case wBye:
		if m.closes && !s.bellREnd {
			t.bellREnd = true
			e(t, step, "W: closes the doorbell")
		}
	}
}
