//go:build linux

package shm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestSpinnerJudgesTheWaitNotTheWaking: where processors take long to wake up, a
// wait that parked is long whatever the peer did, and the peer's answer still
// came soon enough to have spun for.
func TestSpinnerJudgesTheWaitNotTheWaking(t *testing.T) {
	never := func() bool { return false }
	spins := func(s *spinner) bool { // in vain, which raises what it needs
		s.pure = pureLeast
		before := s.need
		s.spin(never, never)
		return s.need != before
	}
	const begin, wake = time.Hour, 90 * time.Microsecond
	for _, v := range []struct {
		name   string
		waited time.Duration
		rang   func(waited time.Duration) time.Duration
		spins  bool
	}{
		{"an answer at once", 10 * time.Microsecond, func(w time.Duration) time.Duration { return begin + w }, true},
		{"an answer of a peer that was woken", 95 * time.Microsecond, func(w time.Duration) time.Duration { return begin + w }, true},
		{"silence", 5 * time.Millisecond, func(w time.Duration) time.Duration { return begin + w }, false},
		{"no word about when", 10 * time.Microsecond, func(time.Duration) time.Duration { return 0 }, false},
		{"a time to come", 5 * time.Millisecond, func(time.Duration) time.Duration { return 1 << 62 }, false},
		{"a time before", 5 * time.Millisecond, func(time.Duration) time.Duration { return -1 << 62 }, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			var s spinner
			for range 20 {
				s.parked(begin, v.rang(v.waited), begin+v.waited+wake)
			}
			assert.Equal(t, v.spins, spins(&s))
			assert.LessOrEqual(t, s.limit(), spinLong)
			assert.GreaterOrEqual(t, s.limit(), spinShort)
		})
	}
}

// TestSpinnerGivesUp: what it never pays to do is done less and less often.
func TestSpinnerGivesUp(t *testing.T) {
	never := func() bool { return false }
	var s spinner
	tried := 0
	for range 1000 {
		s.pure = pureLeast
		before := s.need
		s.spin(never, never)
		if s.need != before {
			tried++
		}
		s.parked(time.Hour, time.Hour+time.Microsecond, time.Hour+2*time.Microsecond)
	}
	assert.Greater(t, tried, 2)
	assert.Less(t, tried, 20)
}
