//go:build linux && cgo

package verbs

import "testing"

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
