package spin

import "sync"

const mostRest = 256 // calls without looking after looking in vain, at most

// Habit decides whether to poll for something that another process of this host is about to do once,
// such as answering a dial, when there is no connection with a Waiter. It does as long as that pays:
// each time in vain doubles the number of calls until the next attempt. The zero value polls. It is
// safe for concurrent use.
type Habit struct {
	mu         sync.Mutex
	rest, vain int
}

// may reports whether to poll this time.
func (h *Habit) may() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rest > 0 {
		h.rest--
		return false
	}
	return true
}

// looked records whether polling found something.
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
