//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/internal/rnic"
)

// sleeper parks one goroutine on the completion channel. A queue pair has two, with a descriptor
// each: an event wakes both, and the one that takes the events from the channel wakes the other,
// which may not have seen them.
type sleeper struct {
	f      *os.File
	rc     syscall.RawConn
	look   func(uintptr) bool
	parked atomic.Bool
	woken  atomic.Bool // Wake or WakeRoom was called
	events int         // how many the last look took
	spin   spin.Waiter
}

func (s *sleeper) open(q *QueuePair) (err error) {
	if s.f, s.rc, err = pollable(int(q.end.channel.fd)); err != nil {
		return err
	}
	s.look = func(uintptr) bool {
		s.events = int(C.v_drain_events(q.end))
		return s.events > 0
	}
	return nil
}

func (s *sleeper) close() {
	if s.f != nil {
		s.f.Close()
	}
}

// kick ends a park.
func (s *sleeper) kick() {
	if s.parked.Load() {
		s.f.SetReadDeadline(rnic.Past)
	}
}

// park waits for an event or a kick, unless there is something already. A goroutine that changes
// that kicks afterwards.
func (s *sleeper) park(q *QueuePair, something func() bool) {
	q.using.RLock()
	defer q.using.RUnlock()
	if q.end.cq == nil {
		return
	}
	s.parked.Store(true)
	if !something() {
		s.events = 0
		if s.rc.Read(s.look) != nil {
			s.f.SetReadDeadline(time.Time{}) // this was the kick's
		}
	}
	s.parked.Store(false)
	if s.events > 0 {
		// The other sleeper may be about to park, and needs the event that was taken here.
		q.reap()
		q.in.kick()
		q.room.kick()
	}
}

// arm requests an event for the next completion, and takes earlier completions.
func (q *QueuePair) arm() {
	q.lockReap()
	defer q.reapMu.Unlock()
	if q.end.cq == nil {
		return
	}
	C.v_arm(q.end)
	q.reapLocked()
}

// Poll fills wcs with completions; see rdma.QueuePair.
func (q *QueuePair) Poll(wcs []rdma.Completion) (int, error) {
	err := q.failed() // nothing comes after it
	q.lockReap()
	if q.ready.len() == 0 {
		q.reapLocked()
	}
	n := q.ready.take(wcs)
	q.reapMu.Unlock()
	if q.chores.Load() {
		q.upkeep()
	}
	if n == 0 {
		return 0, err
	}
	wire.Acquire()
	for i := range wcs[:n] { // an RDMA Read counts as outstanding until the caller knows that it is done
		switch wcs[i].Op {
		case rdma.OpRead:
			q.tx.reads.Add(-1)
		case rdma.OpWrite:
			q.tx.writes.Add(-1)
		}
	}
	return n, nil
}

// Wait is Poll that parks; see rdma.QueuePair.
func (q *QueuePair) Wait(wcs []rdma.Completion) (int, error) {
	s := &q.in
	for spun := false; ; spun = true {
		if !spun && s.spin.Spin(0, q.look, q.hasWork) {
			spun = true
		}
		if n, err := q.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		if s.woken.CompareAndSwap(true, false) {
			return 0, nil
		}
		q.arm()
		if q.hasWork() {
			continue
		}
		s.park(q, q.hasWork)
		s.spin.Woken()
	}
}

// hasWork reports whether Wait has something to return or to do.
func (q *QueuePair) hasWork() bool {
	if q.in.woken.Load() || q.chores.Load() || q.err.Load() != nil {
		return true
	}
	q.reapMu.Lock()
	defer q.reapMu.Unlock()
	return q.ready.len() > 0 || q.flushed && q.reasonLocked() != nil
}

// look polls for completions for a moment, and reports whether there is something for Wait to
// return. It polls in C, where a look is cheaper, and gives way to goroutines that want reapMu.
func (q *QueuePair) look() bool {
	q.reapMu.Lock()
	defer q.reapMu.Unlock()
	q.stop.Store(0) // what is set from here on will be seen
	came := func() bool { return q.ready.len() > 0 || q.chores.Load() || q.flushed && q.reasonLocked() != nil }
	if q.in.woken.Load() || q.err.Load() != nil || came() {
		return true
	}
	if q.wanted.Load() == 0 {
		q.reapForLocked(looks)
	}
	return came()
}

// Wake makes Wait return.
func (q *QueuePair) Wake() {
	q.in.woken.Store(true)
	q.stop.Store(1)
	q.in.kick()
}

// WaitRoom parks until the device is not busy; see rdma.QueuePair.
func (q *QueuePair) WaitRoom() error {
	s := &q.room
	something := func() bool { return s.woken.Load() || q.sendError() != nil || !q.tx.busy.Load() }
	for {
		if err := q.sendError(); err != nil {
			return err
		}
		if s.woken.CompareAndSwap(true, false) || !q.Busy() {
			return nil
		}
		q.arm()
		s.park(q, something)
	}
}

// WakeRoom makes WaitRoom return.
func (q *QueuePair) WakeRoom() {
	q.room.woken.Store(true)
	q.stop.Store(1)
	q.room.kick()
}

// looks is how many times look polls in one call of C, which takes some 5 µs.
const looks = 64

// SetBusyPoll sets how long Wait polls before it parks; see rdma.BusyPoller.
func (q *QueuePair) SetBusyPoll(d time.Duration) { q.in.spin.SetBusyPoll(d) }
