package handover

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gosdp/gosdp/rdma"
)

// fake is a queue pair that can only be aborted.
type fake struct {
	rdma.QueuePair
	aborted int
}

func (f *fake) Abort() error {
	f.aborted++
	return nil
}

// TestTakeAtTheLastMoment: what has come is had, though the time is over too.
func TestTakeAtTheLastMoment(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // of two things that are ready select takes either
		s, qp := New(), new(fake)
		s.Deliver(qp, nil)
		got, err := s.Take(over)
		assert.NoError(t, err)
		assert.Same(t, qp, got)
		s.Withdraw()
		assert.Zero(t, qp.aborted)
	}
	s := New()
	_, err := s.Take(over)
	assert.Equal(t, context.Canceled, err)
	failed := errors.New("it has not come up")
	s.Deliver(nil, failed)
	_, err = s.Take(t.Context())
	assert.Equal(t, failed, err)
}

// TestNothingIsLost: what nobody takes is aborted once, whoever is first.
func TestNothingIsLost(t *testing.T) {
	for range 1000 {
		s, qp := New(), new(fake)
		var delivering sync.WaitGroup
		delivering.Go(func() { s.Deliver(qp, nil) })
		s.Withdraw()
		delivering.Wait()
		assert.Equal(t, 1, qp.aborted)
	}
	s := New()
	s.Deliver(nil, errors.New("it has not come up"))
	s.Withdraw() // there is nothing to abort
}
