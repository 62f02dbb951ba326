//go:build lockorder && (amd64 || arm64)

package lockorder

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
)

// locks records the locks of this process.
var locks = newRecord(order)

// record has the locks that goroutines hold, and the orders in which they took them.
type record struct {
	mu   sync.Mutex
	held map[uintptr][]hold // by goroutine; the first one taken comes first
	free [][]hold           // empty slices, so that the steady state allocates nothing
	seen map[pair]evidence
}

// hold is a lock that a goroutine holds.
type hold struct {
	class reflect.Type
	lock  *sync.Mutex
	at    place
}

// pair says that a goroutine has held outer when it took inner.
type pair struct{ outer, inner reflect.Type }

// evidence is where a pair was taken.
type evidence struct {
	documented   bool
	outer, inner place
}

// place is where a lock was taken: the innermost calls.
type place [8]uintptr

func newRecord(order [][]any) *record {
	r := &record{held: make(map[uintptr][]hold), seen: make(map[pair]evidence)}
	for _, line := range order {
		for i := range line[1:] {
			r.seen[pair{reflect.TypeOf(line[i]), reflect.TypeOf(line[i+1])}] = evidence{documented: true}
		}
	}
	return r
}

// newHold returns a hold for the caller of its caller.
func newHold(class reflect.Type, lock *sync.Mutex) hold {
	h := hold{class: class, lock: lock}
	runtime.Callers(3, h.at[:])
	return h
}

// check panics if the calling goroutine may not wait for a lock, because of those that it holds.
func (r *record) check(h hold) {
	if violation := r.violation(&h); violation != "" {
		panic("lockorder: " + violation)
	}
}

func (r *record) violation(h *hold) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	holds := r.held[goroutine()]
	for i := range holds {
		if violation := r.order(&holds[i], h); violation != "" {
			return violation
		}
	}
	return ""
}

// add notes that the calling goroutine has taken a lock.
func (r *record) add(h hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := goroutine()
	holds, ok := r.held[id]
	if n := len(r.free); !ok && n > 0 {
		holds, r.free = r.free[n-1], r.free[:n-1]
	}
	r.held[id] = append(holds, h)
}

// order notes that inner is taken while outer is held, or returns what is against that.
func (r *record) order(outer, inner *hold) (violation string) {
	p := pair{outer.class, inner.class}
	if _, known := r.seen[p]; known {
		return ""
	}
	if p.outer != p.inner {
		path := r.path(p.inner, p.outer, make(map[reflect.Type]bool))
		if path == nil {
			r.seen[p] = evidence{outer: outer.at, inner: inner.at}
			return ""
		}
		for _, before := range path {
			violation += "\n\n" + r.describe(before, r.seen[before])
		}
	}
	return fmt.Sprintf("locks taken in the wrong order\n\n%s%s", r.describe(p, evidence{outer: outer.at, inner: inner.at}), violation)
}

// path returns the pairs that lead from one class to another, or nil.
func (r *record) path(from, to reflect.Type, visited map[reflect.Type]bool) []pair {
	visited[from] = true
	for p := range r.seen {
		switch {
		case p.outer != from || visited[p.inner]:
		case p.inner == to:
			return []pair{p}
		default:
			if rest := r.path(p.inner, to, visited); rest != nil {
				return append([]pair{p}, rest...)
			}
		}
	}
	return nil
}

// release notes that a lock is no longer held. Another goroutine than the calling one may have taken it.
func (r *record) release(lock *sync.Mutex) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.remove(goroutine(), lock) {
		return
	}
	for id := range r.held {
		if r.remove(id, lock) {
			return
		}
	}
}

// remove takes a lock from those that a goroutine holds.
func (r *record) remove(id uintptr, lock *sync.Mutex) bool {
	holds := r.held[id]
	for i := len(holds) - 1; i >= 0; i-- {
		if holds[i].lock != lock {
			continue
		}
		holds = append(holds[:i], holds[i+1:]...)
		if r.held[id] = holds; len(holds) == 0 {
			delete(r.held, id)
			r.free = append(r.free, holds)
		}
		return true
	}
	return false
}

func (r *record) describe(p pair, e evidence) string {
	if e.documented {
		return fmt.Sprintf("%s before %s is the documented order", p.outer.Name(), p.inner.Name())
	}
	return fmt.Sprintf("%s, held since%s\nand then %s%s", p.outer.Name(), e.outer, p.inner.Name(), e.inner)
}

// String returns one line for each call.
func (p place) String() string {
	var b strings.Builder
	frames := runtime.CallersFrames(p[:])
	for {
		frame, more := frames.Next()
		if frame.PC != 0 {
			fmt.Fprintf(&b, "\n\t%s\n\t\t%s:%d", frame.Function, frame.File, frame.Line)
		}
		if !more {
			return b.String()
		}
	}
}
