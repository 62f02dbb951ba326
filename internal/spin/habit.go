package spin

import "sync"

const mostRest = 256 // calls that do not look, at most, after looking in vain

// Habit decides whether to look for what another process of this host is about to do once,
// such as to answer a dial, and not on a connection that has a Waiter: while looking pays.
// Each time in vain doubles the number of calls until the next attempt. Its zero value
// looks; it is safe for concurrent use.
type Habit struct {
	mu         sync.Mutex
	rest, vain int
}

// may reports whether to look this time.
func (h *Habit) may() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rest > 0 {
		h.rest--
		return false
	}
	return true
}

// looked tells whether there was something.
func (h *Habit) looked(found bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if found {
		h.vain = 0
		return
	}
	h.vain = min(max(2*h.vain, 1), mostRest)
	h.rest = h.vain
}
