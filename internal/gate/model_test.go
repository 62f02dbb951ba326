package gate

import (
	"flag"
	"fmt"
	"hash/maphash"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The model has one direction of a connection: a writer W, a reader R, the kernel between them, and a
// ring. A step is one access to shared memory, one system call, or one event of the kernel's. The search
// visits every reachable state. The callers of package gate follow this pseudocode; "in" and "out" below
// are the states of a direction as an end sees it.
//
//	Write(b):
//	  while b is not empty:
//	    if leave, or the doorbell has ended: come home
//	    out = plain:  write to TCP
//	    out = tcp:    Join once. If Move: out = ring.
//	                  Else send to TCP without blocking; Published; wake R if it sleeps; wait for room
//	    out = ring:   if Recalled: then load the reader's position; out = back, from there
//	                  else put what fits; wake R if it sleeps; wait for room, a recall, the end
//	    out = back:   send the ring's rest to TCP without blocking; when done: Home, wake R, out = plain
//	  come home: tcp: Leave, wake R, out = plain. ring: out = back once recalled. back: as above
//	Close, CloseWrite: Leave unless in back; wake R; FIN
//
//	Read(b):
//	    if leave, or the doorbell has ended, and in = tcp or ring: Recall; wake W;
//	       Unmoved: in = plain; Returning: in = back; Ended: not again
//	    in = plain:   read TCP
//	    in = tcp:     read TCP without blocking: bytes: Consent, return them. Then Empty of the gate, loaded after that:
//	                  Enter: in = ring; an end is kept for in = plain, because the kernel reports a reset once.
//	                  Otherwise an end is returned (a reset if the writer had moved).
//	                  Wait: on TCP. Ask: Consent. Park
//	    in = ring:    load the gate; bytes of the ring: return them. Left: in = plain. Else Park
//	    in = back:    read TCP; then load the gate. Home: in = plain. If TCP ends: the rest of the ring, less what
//	                  TCP had of it, then that end
//	    Park:         drain the doorbell; idle = 1; look at gate and ring again; sleep
//
// A Read that sleeps is also woken by leave. Each end is visited by a timer while it must leave, and does there what
// its calls would do.

// state is everything in the model. Bytes are numbered from 0 in the order of the program's Writes; they stand for
// themselves, so that a loss, a repetition or a wrong order shows.
type state struct {
	gate            uint64
	tcp             line // bytes that have arrived at R's socket
	wire            line // bytes, sent and not arrived
	tcpEnd, fin     bool // R's socket has the end; it is on its way
	rst             bool // the end is a reset,
	rstRead         bool // of which the kernel has told R: it does so once
	rstHeld         bool // R has it for the Read that comes to the end
	ring            line // all that was ever put
	head, tail      uint8
	idle, full      bool // R, W sleeps
	bellR, bellW    bool
	bellREnd        bool // R's doorbell has ended
	bellWEnd        bool
	leave           bool
	wpc             uint8
	out             uint8
	left            uint8 // bytes of the Write that W is in
	next            uint8 // number of the first of these
	returned        uint8 // bytes of Writes that have returned
	pos             uint8
	joined          bool
	back            uint8
	sent            uint8
	closing, wDead  bool
	wDone           bool
	after           uint8
	rpc             uint8
	in              uint8
	attached, ended bool // ended: Recall said Ended
	cons, rest      uint8
	got             uint8
	rEnd            bool
	deadR, deadW    bool // R, W has seen its doorbell end
	seen            uint64
	seenHead        uint8
	err             bool // R's read found an end
	rDead           bool
	bad             string
}

// line is a queue of at most seven small numbers.
type line uint32

func (l line) len() uint8 {
	n := uint8(0)
	for ; l > 0; l >>= 4 {
		n++
	}
	return n
}
func (l line) push(v uint8) line  { return l | line(v+1)<<(4*l.len()) }
func (l line) pop() (uint8, line) { return uint8(l&15) - 1, l >> 4 }
func (l line) at(i uint8) uint8   { return uint8(l>>(4*i)&15) - 1 }

// where a direction is, for out and in
const (
	tcp uint8 = iota
	ring
	back
	plain
)

// W's program counter
const (
	wIdle uint8 = iota
	wTop
	wMove
	wSend
	wPublish
	wWake
	wBell
	wNext // what follows a wake-up
	wRoom // waits for room on TCP
	wRing
	wTail
	wHead
	wFull
	wLook
	wSleep
	wBack
	wHome
	wLeave
	wEnd // Close: Leave
	wFIN
	wBye
)

// R's
const (
	rIdle uint8 = iota
	rTop
	rRead
	rConsent
	rEmpty
	rAsk
	rWait
	rRing
	rTake
	rRecalled // wakes W
	rBack
	rReturning
	rWaitBack
	rRest
	rDrain
	rArm
	rLook
	rSleep
	rOver
)

// model says what can happen, and what is left out of the protocol to see that it matters.
type model struct {
	bytes, write, read  uint8 // in all; at most in a Write, a Read
	tcpRoom, ringRoom   uint8
	kill, closes, leave bool
	closeWrite          bool
	reset               bool // the end of a killed writer may be a reset that loses what is on its way
	killR               bool // the reader's process is killed
	deadline            bool // a Write that waits may return
	without             string
}

func (s *state) with(f func(*Gate)) {
	var g Gate
	g.word.Store(s.gate)
	f(&g)
	s.gate = g.word.Load()
}

func (s *state) word() Word { return Word(s.gate) }

// emit reports a successor. timer: a visit. world: what need not happen.
type emit func(t state, kind uint8, what string)

const (
	step uint8 = iota
	timer
	world
)

func (m *model) successors(s state, e emit) {
	m.kernel(s, e)
	if !s.wDead {
		m.writer(s, e)
	}
	if s.rpc != rOver && !s.rDead {
		m.reader(s, e)
	}
	if m.leave && !s.leave && s.attached {
		t := s
		t.leave, t.bellR, t.bellW = true, true, true
		e(t, world, "leave")
	}
	if m.killR && !s.rDead {
		t := s
		t.rDead = true
		e(t, world, "R is killed")
	}
	if m.kill && !s.wDead && s.wpc != wBye {
		t := s
		t.wDead = true
		e(t, world, "W is killed")
	}
}

func (m *model) kernel(s state, e emit) {
	t := s
	if s.wire != 0 {
		v, rest := s.wire.pop()
		t.tcp, t.wire = s.tcp.push(v), rest
		e(t, step, fmt.Sprint("kernel: byte ", v, " arrives"))
		t = s
	}
	if s.wDead {
		if !s.fin {
			t.fin = true
			e(t, step, "kernel: FIN of the dead")
			t = s
			if m.reset {
				t.fin, t.rst, t.wire = true, true, 0
				e(t, step, "kernel: RST of the dead")
				t = s
			}
		}
		if !s.bellREnd {
			t.bellREnd = true
			e(t, step, "kernel: doorbell of the dead")
			t = s
		}
	}
	if s.rDead && !s.bellWEnd {
		t.bellWEnd = true
		e(t, step, "kernel: doorbell of the dead reader")
		t = s
	}
	if s.fin && s.wire == 0 && !s.tcpEnd {
		t.tcpEnd = true
		e(t, step, "kernel: end arrives")
	}
}

func (s *state) home() bool { return s.leave || s.deadW } // W must come home

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

// settled reports whether a state from which nothing follows by itself is one in which the ends may rest.
func (m *model) settled(s state) string {
	switch {
	case s.rpc == rOver:
		return ""
	case s.rDead && s.left > 0 && !s.wDead:
		return "stuck in a Write to a dead reader"
	case s.rDead:
		return ""
	case s.got < s.next:
		return fmt.Sprintf("stuck with %d of %d bytes read", s.got, s.next)
	case s.left > 0 && !s.wDead:
		return "stuck in a Write"
	case s.wDead || s.closing && s.wpc == wBye:
		return "stuck before the end"
	case s.leave && s.attached && s.in != plain && !s.ended:
		return "the reader does not come home"
	case s.leave && s.attached && s.joined && s.out != plain && !s.closing:
		return "the writer does not come home"
	}
	return ""
}

// cases are what a search should meet.
type cases struct{ moved, ring, recalled, returned, rest, ended, back bool }

func (c *cases) note(s *state) {
	c.moved = c.moved || s.word().Moved()
	c.ring = c.ring || s.tail > 0
	c.recalled = c.recalled || s.in == back && s.head > s.tail
	c.returned = c.returned || s.in == plain && s.tail > 0
	c.rest = c.rest || s.rpc == rRest && s.rest > s.tail
	c.ended = c.ended || s.ended
	c.back = c.back || s.in == plain && s.out == plain
}

// check searches all states. It returns their number, and the trace of the first fault.
func (m *model) check(limit int) (states int, fault string, reached cases) {
	type link struct {
		from int32
		what string
	}
	var first state
	first.gate = uint64(initial)
	seed := maphash.MakeSeed()
	seen := map[uint64]int32{maphash.Comparable(seed, first): 0} // two states of one hash are all but impossible
	order, links := []state{first}, []link{{-1, ""}}
	edges := make([][]int32, 0, 1024) // steps only, to find calls that never end
	trace := func(i int32) string {
		var lines []string
		for ; i > 0; i = links[i].from {
			lines = append(lines, links[i].what)
		}
		var b strings.Builder
		for i := range lines {
			fmt.Fprintln(&b, lines[len(lines)-1-i])
		}
		return b.String()
	}
	for i := 0; i < len(order); i++ {
		s := order[i]
		if s.bad != "" {
			return len(order), fmt.Sprintf("%s\n%s%+v", s.bad, trace(int32(i)), s), reached
		}
		reached.note(&s)
		moves := 0
		var out []int32
		m.successors(s, func(t state, kind uint8, what string) {
			if t == s {
				return
			}
			h := maphash.Comparable(seed, t)
			j, ok := seen[h]
			if !ok {
				j = int32(len(order))
				seen[h] = j
				order = append(order, t)
				links = append(links, link{int32(i), what})
			}
			if kind != world {
				moves++
			}
			if kind == step {
				out = append(out, j)
			}
		})
		edges = append(edges, out)
		if moves == 0 {
			if why := m.settled(s); why != "" {
				return len(order), fmt.Sprintf("%s\n%s%+v", why, trace(int32(i)), s), reached
			}
		}
		if len(order) > limit {
			return len(order), "too many states", reached
		}
	}
	if i := cycle(edges); i >= 0 {
		return len(order), fmt.Sprintf("calls that never end\n%s%+v", trace(i), order[i]), reached
	}
	return len(order), "", reached
}

// cycle returns a node of a cycle, or -1.
func cycle(edges [][]int32) int32 {
	const open, closed = 1, 2
	mark := make([]uint8, len(edges))
	type frame struct{ node, next int32 }
	for root := range edges {
		if mark[root] != 0 {
			continue
		}
		stack := []frame{{int32(root), 0}}
		mark[root] = open
		for len(stack) > 0 {
			f := &stack[len(stack)-1]
			if int(f.next) == len(edges[f.node]) {
				mark[f.node] = closed
				stack = stack[:len(stack)-1]
				continue
			}
			to := edges[f.node][f.next]
			f.next++
			switch mark[to] {
			case open:
				return to
			case 0:
				mark[to] = open
				stack = append(stack, frame{to, 0})
			}
		}
	}
	return -1
}

var bytes = flag.Uint("gate.bytes", 0, "bytes that the writer of the model writes; 0: 2 with -short, else 3")

func TestModel(t *testing.T) {
	n := uint8(*bytes)
	if n == 0 {
		n = 3
		if testing.Short() {
			n = 2
		}
	}
	for _, m := range []model{
		{},
		{deadline: true},
		{leave: true, deadline: true},
		{kill: true, reset: true},
		{killR: true, leave: true},
		{closes: true, leave: true},
		{closeWrite: true, leave: true, deadline: true},
		{kill: true, closes: true, leave: true, reset: true},
		{kill: true, closeWrite: true, leave: true},
		{kill: true, killR: true, closes: true, leave: true, deadline: true},
	} {
		if testing.Short() && m.kill && m.closes {
			continue // some seconds with the race detector
		}
		m.bytes, m.write, m.read, m.tcpRoom, m.ringRoom = n, 2, 2, 2, 2
		if n == 2 {
			m.tcpRoom, m.ringRoom = 1, 1
		}
		states, fault, reached := m.check(50_000_000)
		require.Empty(t, fault, "%+v", m)
		assert.True(t, reached.moved && reached.ring)
		if m.leave {
			assert.True(t, reached.recalled && reached.returned && reached.back, "%+v", reached)
		}
		if m.kill {
			assert.True(t, reached.rest)
		}
		t.Logf("%d states: %+v", states, m)
	}
}

// TestModelNotices: each condition of the protocol is needed.
func TestModelNotices(t *testing.T) {
	for _, without := range []string{
		"consent",
		"published",
		"wake after send",
		"reader looks again",
		"writer looks again",
		"load after read",
		"bytes before the ring",
		"gate before ring",
		"wake for room",
		"Leave is refused",
		"rest less what TCP had",
		"rest of the ring",
		"wake after Recall",
		"recall before position",
		"the end is kept",
		"the rest before the end",
	} {
		t.Run(without, func(t *testing.T) {
			m := model{bytes: 2, write: 2, read: 2, tcpRoom: 1, ringRoom: 1, kill: true, closes: true, leave: true, reset: true, without: without}
			_, fault, _ := m.check(50_000_000)
			assert.NotEmpty(t, fault)
			t.Log(strings.SplitN(fault, "\n", 2)[0])
		})
	}
}
