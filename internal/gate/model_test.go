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
