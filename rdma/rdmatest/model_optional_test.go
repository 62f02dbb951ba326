package rdmatest

import (
	"syscall"

	"github.com/gosdp/gosdp/rdma"
)

// plainEnd is a model whose device only has what every device has.
type plainEnd struct{ *modelEnd }

func (e plainEnd) Limits() rdma.Limits {
	l := e.modelEnd.Limits()
	l.Finishes, l.Shrinks, l.NeedsKeepalive = false, false, false
	return l
}

func (e plainEnd) Shrink()                    { e.Base.Shrink() }
func (e plainEnd) Lost(err error)             { e.Base.Lost(err) }
func (e plainEnd) Finish() (ended, done bool) { return e.Base.Finish() }

// Width is rdma.Base's, unless the model has a fault.
func (e *modelEnd) Width(n int) int {
	if e.m.fault == widens {
		return n + 1
	}
	return e.Base.Width(n)
}

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
