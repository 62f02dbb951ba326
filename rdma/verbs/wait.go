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
// each: an event wakes both, and the one that takes the event from the channel wakes the other,
// which may not have seen it.
type sleeper struct {
	f      *os.File
	rc     syscall.RawConn
	look   func(uintptr) bool
	ready  func() bool // there is something to wake up for; what changes it kicks afterwards
	first  bool        // look is called before it parks
	took   bool        // look took an event
	parked atomic.Bool
	woken  atomic.Bool // Wake or WakeRoom was called
	spin   spin.Waiter
}

func (s *sleeper) open(q *QueuePair, ready func() bool) (err error) {
	if s.f, s.rc, err = pollable(int(q.end.channel.fd)); err != nil {
		return err
	}
	s.ready = ready
	s.look = func(uintptr) bool {
		if s.first {
			// Read has just made the netpoller forget earlier events. The one that was requested last
			// is one of them only if something has completed since, and that may have been before it
			// was requested. An earlier one may be there too: see untaken. If the other sleeper has
			// taken an event, its kick may have come too early.
			s.first = false
			completed := q.completedSinceArm()
			s.parked.Store(true)
			if completed || q.untaken.Load() {
				s.take(q)
			}
			return s.took || q.taken.Load() != q.takenAtArm.Load() || s.ready()
		}
		return s.take(q)
	}
	return nil
}

// take takes an event from the channel, and reports whether there was one.
func (s *sleeper) take(q *QueuePair) bool {
	if s.took = C.v_take_event(q.end) != 0; s.took {
		q.taken.Add(1)
		q.untaken.Store(false)
	}
	return s.took
}

func (s *sleeper) close() {
	if s.f != nil {
		s.f.Close()
	}
}

// kick wakes the goroutine.
func (s *sleeper) kick() {
	if s.parked.Load() {
		s.f.SetReadDeadline(rnic.Past)
	}
}

// park waits for an event or a kick, unless there is something to wake up for already.
func (s *sleeper) park(q *QueuePair) {
	q.using.RLock()
	defer q.using.RUnlock()
	if q.end.cq == nil {
		return
	}
	s.first, s.took = true, false
	if s.rc.Read(s.look) != nil {
		s.f.SetReadDeadline(time.Time{}) // this was the kick's
	}
	s.parked.Store(false)
	if s.took {
		// The other sleeper may be about to park, and needs the event that was taken here.
		q.reap()
		q.in.kick()
		q.room.kick()
	}
}

// mostUntaken is how many events may be left on the channel: of each, the kernel keeps a record.
const mostUntaken = 16

// arm requests an event for the next completion, and takes earlier completions.
func (q *QueuePair) arm() {
	q.lockReap()
	defer q.reapMu.Unlock()
	if q.end.cq == nil {
		return
	}
	// An event stays on the channel if its completion was found without parking.
	if q.arms++; q.arms%mostUntaken == 0 {
		C.v_drain_events(q.end)
	}
	if q.reaped != q.armed && q.taken.Load() == q.takenAtArm.Load() {
		q.untaken.Store(true)
	}
	q.armed = q.reaped
	q.takenAtArm.Store(q.taken.Load())
	C.v_arm(q.end)
	q.reapLocked()
}

// completedSinceArm takes completions, and reports whether any were taken since the last arm.
func (q *QueuePair) completedSinceArm() bool {
	q.lockReap()
	defer q.reapMu.Unlock()
	q.reapLocked()
	return q.reaped != q.armed
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
		if !spun && s.spin.Spin(1, q.look, q.hasWork) {
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
		s.park(q)
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
	if q.flushed {
		return q.ready.len() > 0 || q.reasonLocked() != nil
	}
	return q.ready.len() > 0 || q.refusal.Load() != nil
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
	for {
		if err := q.sendError(); err != nil {
			return err
		}
		if s.woken.CompareAndSwap(true, false) || !q.Busy() {
			return nil
		}
		q.arm()
		s.park(q)
	}
}

// hasRoom reports whether WaitRoom has something to return.
func (q *QueuePair) hasRoom() bool {
	return q.room.woken.Load() || q.sendError() != nil || !q.tx.busy.Load()
}

// WakeRoom makes WaitRoom return.
func (q *QueuePair) WakeRoom() {
	q.room.woken.Store(true)
	q.stop.Store(1)
	q.room.kick()
}

// looks is how many times look polls in one call of C, which takes some 5 µs.
const looks = 64

// SetBusyPoll sets how long Wait polls before it parks; see rdma.QueuePair.
func (q *QueuePair) SetBusyPoll(d time.Duration) { q.in.spin.SetBusyPoll(d) }
