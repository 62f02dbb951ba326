package nic

import "sync"

// Reads holds the outstanding RDMA Reads of this end, oldest first. The goroutine that posts
// adds them, and the polling goroutine takes them out. The zero value is empty. It is safe
// for concurrent use.
type Reads[T any] struct {
	mu    sync.Mutex
	queue []*T
}

// Add appends a Read. It returns false if limit Reads are outstanding.
func (r *Reads[T]) Add(read *T, limit int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) >= limit {
		return false
	}
	r.queue = append(r.queue, read)
	return true
}

// Oldest returns the oldest Read, or nil.
func (r *Reads[T]) Oldest() *T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return nil
	}
	return r.queue[0]
}

// Find returns the oldest Read that matches, or nil.
func (r *Reads[T]) Find(match func(*T) bool) *T {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, read := range r.queue {
		if match(read) {
			return read
		}
	}
	return nil
}

// Pop takes the oldest Read out. There must be one.
func (r *Reads[T]) Pop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := copy(r.queue, r.queue[1:])
	r.queue[n] = nil // its memory is the program's again
	r.queue = r.queue[:n]
}
