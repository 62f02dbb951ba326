package lookout

import (
	"sync/atomic"
	"time"
)

const (
	spinShort = 300 * time.Microsecond // a wait as short as this would perhaps rather have spun,
	spinHint  = 16                     // and brings the next attempt so many waits nearer
	spinMost  = 1 << 10                // waits between two attempts, when they keep failing
)

// spinning is how many goroutines of this process look out. One may: the others
// leave the processors to whoever works.
var spinning atomic.Int32

// alone reports whether to look out, because nobody else does; then leave follows.
func alone() bool {
	if spinning.Add(1) > 1 {
		leave()
		return false
	}
	return true
}

func leave() { spinning.Add(-1) }

// Spinner decides whether the next of many waits in one place spins before it
// parks: while that pays off, and now and then to see whether it would. How long a
// wait was that has parked says little about that, since its own waking up is in
// it. It belongs to the waiting goroutine; the zero value is ready to use.
type Spinner struct {
	failed int // what the last failure has cost: so many waits do not spin
	skip   int // how many of those are left
}

// Begin reports whether to spin now; then End follows. One goroutine of a process
// spins at a time.
func (s *Spinner) Begin() bool {
	if s.skip > 0 {
		s.skip--
		return false
	}
	return alone()
}

// End tells whether the spinning has found something. Each failure doubles what it
// takes to try again, each success halves it.
func (s *Spinner) End(found bool) {
	leave()
	if found {
		s.failed /= 2
		return
	}
	s.failed = min(max(2*s.failed, 1), spinMost)
	s.skip = s.failed
}

// Parked tells how long a wait was that has parked.
func (s *Spinner) Parked(d time.Duration) {
	if d <= spinShort {
		s.skip = max(s.skip-spinHint, 0)
	}
}
