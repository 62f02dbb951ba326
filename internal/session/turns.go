package session

import (
	"math/bits"
	"time"
)

// predicted is the configuration of zero copy on a connection that advertises only what turns
// predicts (see [Session.Predict]). Writes up to the threshold are never faster without a copy.
// Such a connection stays in Combined mode, where the peer may have one advertisement.
var predicted = DirectConfig{Threshold: 128 << 10, PeerAdverts: 1, Worth: 128 << 10, Predict: true}

// turns predicts whether a large Write is a request or a response: whether the program then waits
// for the peer. Only then can zero copy be faster than copying, because in a stream the copies of
// both ends overlap.
//
// A large Write is answered if payload arrives after its last byte was sent and before the next
// large Write begins. After enough answered Writes in succession, the next one is predicted to be
// answered. A stream, or traffic in both directions at once, resets the count.
//
// Whether zero copy is faster depends on the processor, the kernel and the size. So a predicted
// Write goes the way that its size class has measured to be faster (see pace).
type turns struct {
	least    int   // bytes; Writes up to this length are not large
	answered int32 // large Writes in succession that were answered
	need     int32 // how many must be, before a Write is predicted
	left     int   // bytes of the last large Write that have not been sent
	open     bool  // it has not been answered
	direct   bool  // it was advertised
	timed    bool  // pace wants to know when it is answered
	begins   bool  // and the Write that has begun is this one, not a small one after it
	began    time.Duration
	class    *pace // the size class of it
	classes  [6]pace
}

const (
	needLeast = 2 // answered Writes, so that the direction has changed three times
	needMost  = 1 << 12
)

func newTurns(least int) turns { return turns{least: least, need: needLeast} }

// begin notes a Write of n bytes, and reports whether it should be advertised. may says that zero
// copy can be used.
func (t *turns) begin(n int, may bool) bool {
	t.begins = false
	if n <= t.least {
		return false
	}
	if t.open {
		t.answered = 0
	}
	t.open, t.left, t.direct, t.timed = true, n, false, false
	if may && t.answered >= t.need {
		t.class = &t.classes[min(bits.Len(uint(n/max(t.least, 1)))-1, len(t.classes)-1)]
		t.direct, t.timed = t.class.next()
		t.begins = t.timed
	}
	return t.direct
}

// sent notes that n bytes have been sent, copied or fetched.
func (t *turns) sent(n int) {
	if t != nil {
		t.left = max(0, t.left-n)
	}
}

// payload notes that payload has arrived. It reports whether this is an answer whose time
// counts.
func (t *turns) payload() (timed bool) {
	switch {
	case t == nil:
	case t.left > 0: // the peer does not wait for the Write
		if t.direct {
			t.need = min(2*t.need, needMost)
		}
		t.answered, t.direct, t.timed = 0, false, false
	case t.open:
		t.open = false
		t.answered = min(t.answered+1, needMost)
		return t.timed
	}
	return false
}

// pace compares the time from a Write to its answer with and without zero copy, for Writes of
// similar size. The zero value begins with a comparison.
type pace struct {
	direct bool             // zero copy was faster
	step   int32            // of the comparison; negative: Writes until the next one
	rest   int32            // Writes between the last comparison and the next
	best   [2]time.Duration // the shortest time without and with zero copy
}

const (
	paceTries = 3   // Writes of each kind in a comparison
	restLeast = 128 // Writes between two comparisons; doubles while the result is the same
	restMost  = 1 << 10
)

// next returns how to send the next Write, and whether its time is to be measured.
func (p *pace) next() (direct, timed bool) {
	if p.step < 0 {
		p.step++
		return p.direct, false
	}
	return p.direct != (p.step < paceTries), true
}

// measured notes the time from a Write to its answer.
func (p *pace) measured(direct bool, d time.Duration) {
	best := &p.best[0]
	if direct {
		best = &p.best[1]
	}
	if *best == 0 || d < *best {
		*best = max(d, 1)
	}
	if p.step++; p.step < 2*paceTries {
		return
	}
	faster := p.best[1] < p.best[0]
	if faster == p.direct && p.rest > 0 {
		p.rest = min(2*p.rest, restMost)
	} else {
		p.rest = restLeast
	}
	*p = pace{direct: faster, step: -p.rest, rest: p.rest}
}

// Predict starts zero copy for Writes that turns predicts to be answered. The state is created
// when either end first needs it.
func (s *Session) Predict() { s.predicts = true }

// Timed reports whether the driver should call WriteBegan for the Write that has begun.
func (s *Session) Timed() bool { return s.turns != nil && s.turns.begins }

// WriteBegan notes when the Write in progress began. The driver calls Answered with a later
// reading of the same clock when Receive asks for it.
func (s *Session) WriteBegan(now time.Duration) { s.turns.began = now }

// Answered notes when the Write was answered; see Event.Answer.
func (s *Session) Answered(now time.Duration) {
	t := s.turns
	t.timed = false
	t.class.measured(t.direct, now-t.began)
}
