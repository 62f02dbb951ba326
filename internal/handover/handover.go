// Package handover passes a queue pair from the goroutine that brings its channel
// up to the one that waits for it, or to nobody, and loses none.
package handover

import (
	"context"
	"sync"

	"github.com/gosdp/gosdp/rdma"
)

// A Slot is for one queue pair, or for the error that there is none instead. It is
// safe for concurrent use.
type Slot struct {
	came chan result // has room for one

	mu   sync.Mutex
	over bool // nobody will take it
}

type result struct {
	qp  rdma.QueuePair
	err error
}

// New returns an empty Slot.
func New() *Slot { return &Slot{came: make(chan result, 1)} }

// Deliver gives the queue pair, or the error if that is not nil, to who waits in
// Take, or will. Behind Withdraw it aborts the queue pair. It is called once.
func (s *Slot) Deliver(qp rdma.QueuePair, err error) {
	if err != nil {
		qp = nil // which a nil pointer in an interface is not
	}
	s.mu.Lock()
	over := s.over
	if !over {
		s.came <- result{qp, err}
	}
	s.mu.Unlock()
	if over && err == nil {
		qp.Abort()
	}
}

// Take waits until ctx is done. What has come at the same time is had: after a
// standstill of the machine both are found at once, and who has come takes the
// channel for up.
func (s *Slot) Take(ctx context.Context) (rdma.QueuePair, error) {
	select {
	case r := <-s.came:
		return r.qp, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-s.came:
		return r.qp, r.err
	default:
		return nil, ctx.Err()
	}
}

// Withdraw says that nobody will take what comes, and aborts what has.
func (s *Slot) Withdraw() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	select {
	case r := <-s.came:
		if r.err == nil {
			r.qp.Abort()
		}
	default:
	}
}
