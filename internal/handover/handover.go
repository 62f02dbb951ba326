// Package handover passes a queue pair from the goroutine that opens its channel to the one
// that waits for it. If that no longer waits, the queue pair is aborted.
package handover

import (
	"context"
	"sync"

	"github.com/gosdp/gosdp/rdma"
)

// A Slot takes one queue pair, or the error that there is none. It is safe for concurrent use.
type Slot struct {
	delivered chan result // has room for one

	mu        sync.Mutex
	withdrawn bool
}

type result struct {
	qp  rdma.QueuePair
	err error
}

// New returns an empty Slot.
func New() *Slot { return &Slot{delivered: make(chan result, 1)} }

// Deliver gives the queue pair, or the error if that is not nil, to the call of Take. After
// Withdraw it aborts the queue pair. It is called once.
func (s *Slot) Deliver(qp rdma.QueuePair, err error) {
	if err != nil {
		qp = nil // which a nil pointer in an interface is not
	}
	s.mu.Lock()
	withdrawn := s.withdrawn
	if !withdrawn {
		s.delivered <- result{qp, err}
	}
	s.mu.Unlock()
	if withdrawn && err == nil {
		qp.Abort()
	}
}

// Take waits for the queue pair until ctx is done. If a queue pair arrives just as ctx expires,
// Take returns it: after a pause of the machine both become visible together, and the peer
// already considers the channel established.
func (s *Slot) Take(ctx context.Context) (rdma.QueuePair, error) {
	select {
	case r := <-s.delivered:
		return r.qp, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-s.delivered:
		return r.qp, r.err
	default:
		return nil, ctx.Err()
	}
}

// Withdraw aborts the queue pair, whether it has been delivered already or will be.
func (s *Slot) Withdraw() {
	s.mu.Lock()
	s.withdrawn = true
	s.mu.Unlock()
	select {
	case r := <-s.delivered:
		if r.err == nil {
			r.qp.Abort()
		}
	default:
	}
}
