//go:build linux && cgo

package verbs

import (
	"testing"
	"time"
)

// A wait spins while that pays off; attempts that fail become rarer, and short
// waits bring them back.
func TestSpinner(t *testing.T) {
	var s spinner
	// attempt goes on until a wait spins, and returns how many did not.
	attempt := func(found bool) (parked int) {
		for !s.begin() {
			parked++
		}
		s.end(found)
		return parked
	}
	for range 10 {
		if n := attempt(true); n != 0 {
			t.Fatalf("%d waits parked though spinning pays off", n)
		}
	}
	attempt(false)
	for want := 1; want <= spinMost; want *= 2 {
		if n := attempt(false); n != want {
			t.Fatalf("%d waits parked between two attempts that failed, not %d", n, want)
		}
	}
	if n := attempt(false); n != spinMost {
		t.Fatalf("%d waits parked, more than the most", n)
	}
	for range spinMost / spinHint {
		s.slept(spinShort)
	}
	if n := attempt(true); n != 0 {
		t.Fatalf("%d waits parked, after many that were short", n)
	}
	attempt(false)
	for range spinMost {
		s.slept(spinShort + time.Microsecond)
	}
	if n := attempt(true); n != spinMost {
		t.Fatalf("%d waits parked, after many that were long, not %d", n, spinMost)
	}
}

// One goroutine of a process spins at a time.
func TestSpinners(t *testing.T) {
	var a, b spinner
	if !a.begin() || b.begin() {
		t.Fatal("two spin, or none")
	}
	a.end(true)
	if !b.begin() {
		t.Fatal("nobody spins, and nobody may")
	}
	b.end(true)
}

// Buffers that are posted beyond those that were asked for do not let a message
// through that has come without credit, wherever the free ones are.
func TestReserved(t *testing.T) {
	for free := range slack {
		r := receiver{count: 16}
		for i := range r.count + extra {
			b := &buffer{number: uint32(i)}
			r.buffers = append(r.buffers, b)
		}
		r.posted = r.count + extra
		next := uint32(0)
		for range free { // which come, and are released, and are not posted again yet
			if _, reserved := r.filled(next); reserved {
				t.Fatalf("message %d has credit", next)
			}
			next++
			r.lent--
		}
		for range r.count {
			if _, reserved := r.filled(next); reserved {
				t.Fatalf("message %d has credit, with %d buffers free", next, free)
			}
			next++
		}
		if _, reserved := r.filled(next); !reserved {
			t.Fatalf("message %d has no credit, with %d buffers free", next, free)
		}
	}
}
