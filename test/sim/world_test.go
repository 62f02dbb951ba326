package sim

import (
	"fmt"
	"math/rand/v2"
	"reflect"

	"github.com/gosdp/gosdp/internal/session"
	"github.com/gosdp/gosdp/wire"
	"github.com/gosdp/gosdp/zcopy"
)

const zcopyRide = zcopy.Ride

// world is one run: two ends and everything that chance decides.
type world struct {
	r     *rand.Rand
	ends  [2]*end
	stats *stats
	trace func(string) // nil: nothing is traced
	step  int

	threshold int
	worth     int // bytes that are worth an RDMA Read of their own
	piece     int // bytes in one SrcAvail
	part      int // bytes in one RDMA Read
	ord       int
	largest   int  // bytes in a call
	refusal   int  // the device refuses one message of so many; 0: none
	habit     int  // how seldom sizes are just any
	chatty    bool // most Writes are short
	calm      bool // nothing but the peer's hints changes the mode
	resizes   bool // private buffers grow and shrink
	turns     bool // the programs mostly take turns, as a client and a server do
	turn      int  // the end whose turn it is
	often     [actions]int
	sum       int
}

// failure is what a run ends with when something is wrong.
type failure string

func (w *world) failf(format string, args ...any) {
	panic(failure(fmt.Sprintf("step %d: ", w.step) + fmt.Sprintf(format, args...)))
}

func (w *world) tracef(format string, args ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf("%4d ", w.step) + fmt.Sprintf(format, args...))
	}
}

func describe(m *wire.Message, invalidate uint32) (s string) {
	switch m.MID {
	case wire.MIDSrcAvail, wire.MIDSinkAvail:
		s = fmt.Sprintf(", STag %#x of %d bytes, NonDiscards %d", m.Advert.STag, m.Advert.Len, m.Advert.NonDiscards)
	case wire.MIDRdmaRdCompl, wire.MIDRdmaWrCompl:
		s = fmt.Sprintf(", %d bytes", m.Size)
	case wire.MIDModeChange:
		s = fmt.Sprintf(" to %d, S %v", m.Mode, m.ModeOfSend)
	}
	if n := len(m.Payload); n > 0 {
		s += fmt.Sprintf(", payload %d", n)
	}
	if m.Flags&wire.FlagReqPipe != 0 {
		s += ", REQ_PIPE"
	}
	if invalidate != 0 {
		s += fmt.Sprintf(", invalidates %#x", invalidate)
	}
	return s
}

// chance is true once in n, and never for 0.
func (w *world) chance(n int) bool { return n > 0 && w.r.IntN(n) == 0 }

func pick[T any](w *world, of ...T) T { return of[w.r.IntN(len(of))] }

// newWorld connects two ends as the seed has it.
func newWorld(seed uint64, s *stats) *world {
	w := &world{r: rand.New(rand.NewPCG(seed, 0)), stats: s}
	w.threshold = pick(w, 0, 1, 64, 100, 300, 300)
	w.piece = pick(w, 65, 256, 256, 1024, 4096)
	if w.chance(20) {
		w.piece = 2
	}
	w.worth = pick(w, 1, 20, 100, 400)
	w.part = pick(w, 100, 1<<20, 1<<20)
	w.ord = pick(w, 1, 2, 8)
	w.largest = pick(w, 500, 3000, 3000, 20000)
	w.refusal = pick(w, 0, 5, 20)
	w.habit = pick(w, 2, 4, 20)
	w.chatty = w.chance(4)
	w.calm = w.chance(2)
	w.resizes = w.chance(4)
	w.turns = w.chance(3)
	w.chatty = w.chatty && !w.turns
	for a := range w.often {
		w.often[a] = usual[a] * pick(w, 1, 3, 10, 30)
		w.sum += w.often[a]
	}
	var bufs [2]uint16
	var size, adverts [2]int
	var hellos [2]wire.Hello
	for i := range 2 {
		bufs[i] = uint16(4 + w.r.IntN(12))
		size[i] = pick(w, wire.MinBuffer, 60, 100, 200, 500, 500)
		adverts[i] = pick(w, 1, 2, 2, 3, 3, 4, 9, 9)
		hellos[i] = wire.Hello{Bufs: bufs[i], LocalRcvSz: uint32(size[i]), MaxAdverts: uint16(adverts[i])}
	}
	for i := range 2 {
		threshold := w.threshold
		if w.chance(20) {
			threshold = zcopy.Never
		}
		e := &end{
			w: w, name: string(rune('A' + i)), dir: i,
			dev:    &device{w: w, name: string(rune('A' + i))},
			posted: int(bufs[i]), adverts: adverts[1-i],
			s: session.New(session.Config{
				Dialled: i == 0, Local: hellos[i], Peer: hellos[1-i], Invalidates: true,
			}),
		}
		e.s.StartDirect(session.DirectConfig{
			Threshold: threshold, PeerAdverts: adverts[1-i], Refuse: w.chance(20), Worth: w.worth, MaxOffer: w.piece,
		})
		parts := e.s.Parts()
		e.bs, e.bk, e.src, e.snk = parts.Source, parts.Sink, parts.ZSource, parts.ZSink
		if w.resizes {
			e.bs.Carried(1 << 30) // buffers grow from the start
		}
		w.ends[i] = e
	}
	a, b := w.ends[0], w.ends[1]
	a.peer, b.peer, a.dev.peer, b.dev.peer = b, a, b.dev, a.dev
	w.tracef("threshold %d, piece %d, buffers %v of %v bytes, adverts %v", w.threshold, w.piece, bufs, size, adverts)
	return w
}

// action is something that can happen at an end.
type action int

const (
	deliver action = iota
	answer
	poll
	postEnd
	control
	stepWrite
	stepRead
	startWrite
	startRead
	stopWrite
	stopRead
	overdue
	hint
	idle
	closeWrite
	closeRead
	actions
)

// usual is how often each action is tried, before the seed's bias.
var usual = [actions]int{
	deliver: 100, answer: 60, poll: 100, postEnd: 30, control: 60, stepWrite: 60, stepRead: 60,
	startWrite: 30, startRead: 30, stopWrite: 1, stopRead: 1, overdue: 1, hint: 3, idle: 1,
}

// do tries an action, and reports whether anything has happened.
func (w *world) do(e *end, a action) bool {
	switch a {
	case deliver:
		return e.dev.deliver()
	case answer:
		return e.dev.answer()
	case poll:
		return e.poll()
	case postEnd:
		return e.sent()
	case control:
		return e.control()
	case stepWrite:
		return e.stepWrite()
	case stepRead:
		return e.stepRead()
	case startWrite:
		if w.chatty && !w.chance(4) {
			return e.startWrite(1 + w.r.IntN(20))
		}
		if w.turns {
			return e.startWrite(max(w.size(e), w.threshold+1))
		}
		return e.startWrite(w.size(e))
	case startRead:
		return e.startRead(w.size(e))
	case stopWrite:
		return e.stopWrite()
	case stopRead:
		return e.stopRead()
	case overdue:
		return e.overdue()
	case hint:
		return e.hint()
	case idle:
		return e.idle()
	case closeWrite:
		return e.closeWrite()
	default:
		return e.closeRead()
	}
}

// run takes so many random steps.
func (w *world) run(steps int) {
	for end := w.step + steps; w.step < end; w.step++ {
		for range 50 {
			n := w.r.IntN(w.sum)
			a := action(0)
			for ; n >= w.often[a]; a++ {
				n -= w.often[a]
			}
			if w.do(w.ends[w.r.IntN(2)], a) {
				break
			}
		}
	}
}

// settle lets everything come to an end that can without a deadline, and then
// what cannot.
func (w *world) settle() {
	refusal := w.refusal
	w.refusal = 0
	w.drain(true)
	for _, e := range w.ends {
		if e.writing != nil {
			w.failf("%s: Write hangs with %d of %d bytes through", e.name, e.writing.done, len(e.writing.b))
		}
		if e.came != e.peer.wrote {
			w.failf("%s: %d bytes were to come, %d came", e.name, e.peer.wrote, e.came)
		}
	}
	for _, e := range w.ends {
		e.stopRead()
	}
	w.drain(false)
	w.quiet()
	w.refusal = refusal
}

// drain goes on until nothing happens any more.
func (w *world) drain(reads bool) {
	for idle, rounds := 0, 0; idle < 2; rounds++ {
		if rounds == 1_000_000 {
			w.failf("the ends go on for ever")
		}
		w.step++
		idle++
		for i := range 2 {
			e := w.ends[i]
			if reads && e.startRead(w.size(e)) {
				idle = 0
			}
			for a := deliver; a <= stepRead; a++ {
				for w.do(e, a) {
					idle = 0
					if w.chance(3) {
						break
					}
				}
			}
		}
	}
}

// quiet checks what has to be true when nothing is under way.
func (w *world) quiet() {
	for _, e := range w.ends {
		e.src.Next(0, false) // drops what is stale
		_, ended := e.src.Ended()
		potential, nonDiscards := number(e.src, "potential"), number(e.peer.snk, "nonDiscards")
		switch {
		case e.src.Moved() > 0 || ended:
			w.failf("%s: advertisements of no Write", e.name)
		case e.reading != nil:
			w.failf("%s: Read hangs", e.name)
		case !e.dev.quiet() || e.batch.open:
			w.failf("%s: something is under way", e.name)
		case e.dev.exposed(true)+e.dev.exposed(false) > 0:
			w.failf("%s: memory is exposed", e.name)
		case e.src.Mode() != e.peer.snk.Mode():
			w.failf("%s: sends in mode %d, the peer receives in %d", e.name, e.src.Mode(), e.peer.snk.Mode())
		case potential != nonDiscards:
			w.failf("%s: PotentialNonDiscards is %d, the peer's NonDiscards %d", e.name, potential, nonDiscards)
		case e.src.Outstanding() > 0 || e.snk.Holding():
			w.failf("%s: a SrcAvail is left over", e.name)
		case e.s.Unread() > 0:
			w.failf("%s: %d bytes are left over", e.name, e.s.Unread())
		}
	}
}

// number reads a field that only this check needs.
func number(of any, field string) uint64 {
	return reflect.ValueOf(of).Elem().FieldByName(field).Uint()
}

// play is a whole run: some phases that settle, then both ends close.
func (w *world) play(steps int) {
	phases := 1 + w.r.IntN(4)
	for i := range phases {
		if i == phases-1 {
			w.often[closeWrite], w.often[closeRead] = 5, 5
			w.sum += 10
		}
		w.run(steps / phases)
		w.settle()
	}
	for _, e := range w.ends {
		e.closeWrite()
	}
	w.settle()
	for _, e := range w.ends {
		if !e.s.EndSent() || !e.s.PeerEnded() {
			w.failf("%s: no end of the stream", e.name)
		}
		w.stats.count(e)
	}
}

// try plays a seed, and returns what was wrong.
func try(seed uint64, steps int, s *stats, trace func(string)) (err error) {
	defer func() {
		switch f := recover().(type) {
		case nil:
		case failure:
			err = fmt.Errorf("seed %d: %s", seed, string(f))
		default:
			panic(f)
		}
	}()
	w := newWorld(seed, s)
	w.trace = trace
	w.play(steps)
	return nil
}
