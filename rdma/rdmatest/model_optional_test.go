package rdmatest

import (
	"syscall"

	"github.com/gosdp/gosdp/rdma"
)

var (
	_ rdma.Shrinker         = (*modelEnd)(nil)
	_ rdma.PeerLossNotifier = (*modelEnd)(nil)
	_ rdma.Finisher         = (*modelEnd)(nil)
)

// Shrink frees the parcels that are recycled.
func (e *modelEnd) Shrink() {
	defer e.change()()
	e.m.spare = nil
	if e.m.fault == idlesTooMuch {
		e.wire = fifo[*parcel]{}
	}
}

func (e *modelEnd) Lost(err error) {
	defer e.change()()
	if e.m.fault == lostAsPeer {
		err = syscall.ECONNRESET
	}
	if e.err == nil && e.m.fault != losesLost {
		e.fail(err)
	}
}

func (e *modelEnd) Finish() (ended, done bool) {
	defer e.change()()
	for e.m.fault == finishesLate && e.busy() {
		e.m.changed.Wait()
	}
	if e.err != nil {
		done = e.m.fault != finishesNever
	} else {
		done = !e.busy() && len(e.answers.rest()) == 0 || e.m.fault == finishesEarly
	}
	return done, done
}
