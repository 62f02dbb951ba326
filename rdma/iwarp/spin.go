package iwarp

import (
	"sync/atomic"
	"time"
)

// Waking up through the netpoller is most of a round trip. So a wait first tries
// a number of times without parking, but only while that has lately paid off:
// on a machine with something else to do, a processor that is spun on is taken
// from whoever was to send the bytes.

const (
	spinTries = 64                    // looks at the socket, about 30 µs together
	spinShort = 50 * time.Microsecond // a parked wait as short as this would rather have spun
	spinLeast = 4                     // the score at which a wait spins at first,
	spinMost  = 1 << 10               // and at most, when attempts keep failing
)

// spinners is how many goroutines of this process spin. One may: the others
// leave the processors to whoever works.
var spinners atomic.Int32

// spinner decides whether a direction's next wait spins. It belongs to the
// waiting goroutine; the zero value is ready to use.
type spinner struct {
	score int // short waits, less twice the long ones
	need  int // the score at which to spin; 0: spinLeast
}

// begin reports whether to spin now; then end follows.
func (s *spinner) begin() bool {
	if s.score < max(s.need, spinLeast) {
		return false
	}
	if spinners.Add(1) > 1 {
		spinners.Add(-1)
		return false
	}
	return true
}

// end tells whether the spinning has found something. Each failure doubles what
// it takes to try again, each success halves it.
func (s *spinner) end(found bool) {
	spinners.Add(-1)
	if found {
		s.need /= 2
		return
	}
	s.score = 0
	s.need = min(max(2*s.need, spinLeast), spinMost)
}

// parked tells how long a wait was that has parked.
func (s *spinner) parked(d time.Duration) {
	if d <= spinShort {
		s.score = min(s.score+1, spinMost)
	} else {
		s.score = max(s.score-2, 0)
	}
}
