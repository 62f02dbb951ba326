//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/internal/rnic"
)

// sleeper parks one goroutine on the completion channel. A queue pair has two: an event wakes both,
// and the one that takes the event from the channel wakes the other, which may not have seen it.
//
// A goroutine whose waits are short does not park, but blocks: it waits in a system call of its
// thread (spin.Waiter.Block). The netpoller would wake a thread for these events in vain. So it does
// not watch the channel itself, but an epoll instance of the sleeper, which has the channel only
// from when the sleeper parks until a sleeper of the queue pair blocks.
type sleeper struct {
	f       *os.File // the epoll instance
	rc      syscall.RawConn
	channel int
	look    func(uintptr) bool
	ready   func() bool // there is something to wake up for; what changes it kicks afterwards
	first   bool        // look is called before it parks
	took    bool        // look took an event
	parked  atomic.Bool
	blocked atomic.Bool
	woken   atomic.Bool // Wake or WakeRoom was called
	spin    spin.Waiter

	// mu guards what follows, that parked is set only while watched is, and that blocked is not
	// cleared while somebody wakes the goroutine.
	mu      sync.Mutex
	watched bool // the epoll instance has the channel
}

func (s *sleeper) open(q *QueuePair, ready func() bool) (err error) {
	s.channel = int(q.end.channel.fd)
	if err := unix.SetNonblock(s.channel, true); err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	own, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.EpollCtl(own, unix.EPOLL_CTL_ADD, s.channel, new(unix.EpollEvent)); err != nil {
		unix.Close(own)
		return os.NewSyscallError("epoll_ctl", err)
	}
	if s.f, s.rc, err = polled(own); err != nil {
		return err
	}
	s.ready = ready
	s.look = func(epoll uintptr) bool {
		if s.first {
			// Read has just made the netpoller forget earlier events. There may be one: the one that
			// was requested last, or an earlier one whose completion was found without it. While that
			// is on the channel, devices such as mlx5 ignore requests, because the library numbers
			// requests by the events that were taken. If the other sleeper has taken the event, its
			// kick may have come too early.
			s.first = false
			s.mu.Lock()
			s.parked.Store(true)
			s.watchLocked(int(epoll), unix.EPOLLIN)
			s.mu.Unlock()
			return s.take(q) || q.taken.Load() != q.takenAtArm.Load() || s.ready()
		}
		return s.take(q)
	}
	return nil
}

// watchLocked makes the netpoller watch the channel, or not (0). The caller must hold mu.
func (s *sleeper) watchLocked(epoll int, events uint32) {
	if watch := events != 0; watch != s.watched {
		// It cannot fail: the epoll instance has the channel.
		unix.EpollCtl(epoll, unix.EPOLL_CTL_MOD, s.channel, &unix.EpollEvent{Events: events})
		s.watched = watch
	}
}

// leave makes the netpoller not watch the channel, unless the sleeper is parked.
func (s *sleeper) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watched && !s.parked.Load() {
		s.rc.Control(func(epoll uintptr) { s.watchLocked(int(epoll), 0) })
	}
}

// take takes an event from the channel, and reports whether there was one.
func (s *sleeper) take(q *QueuePair) bool {
	s.took = C.v_take_event(q.end) != 0
	s.count(q)
	return s.took
}

// count counts the event that was taken.
func (s *sleeper) count(q *QueuePair) {
	if s.took {
		q.taken.Add(1)
	}
}

func (s *sleeper) close() {
	if s.f != nil {
		s.f.Close()
	}
}

// kick wakes the goroutine.
func (s *sleeper) kick(q *QueuePair) {
	switch {
	case s.blocked.Load():
		s.mu.Lock()
		if s.blocked.Load() { // so q.id.e, and the descriptor, still exist
			one := [8]byte{1}
			unix.Write(q.id.e.wake, one[:])
		}
		s.mu.Unlock()
	case s.parked.Load():
		s.f.SetReadDeadline(rnic.Past)
	}
}

// wait blocks or parks until there is an event or a kick, unless there is something to wake up for
// already.
func (s *sleeper) wait(q *QueuePair) {
	q.using.RLock()
	defer q.using.RUnlock()
	if q.end.cq == nil {
		return
	}
	begin := spin.Clock()
	if s.spin.Block() {
		s.block(q)
		s.spin.Blocked()
	} else {
		s.park()
		s.spin.Woken()
	}
	s.spin.Lasted(spin.Clock() - begin)
	if s.took {
		// The other sleeper may be about to park, and needs the event that was taken here.
		q.reap()
		q.in.kick(q)
		q.room.kick(q)
	}
}

func (s *sleeper) park() {
	s.first, s.took = true, false
	if s.rc.Read(s.look) != nil {
		s.f.SetReadDeadline(time.Time{}) // this was the kick's
	}
	s.parked.Store(false)
}

func (s *sleeper) block(q *QueuePair) {
	q.in.leave()
	q.room.leave()
	s.took = false
	s.blocked.Store(true)
	// If the other sleeper has taken the event, its kick may have come too early.
	if q.taken.Load() == q.takenAtArm.Load() && !s.ready() {
		s.took = C.v_block(q.end, C.int(q.id.e.wake), C.int(spin.BlockMost)) != 0
	}
	s.mu.Lock()
	s.blocked.Store(false)
	s.mu.Unlock()
	s.count(q)
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
	q.takenAtArm.Store(q.taken.Load())
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
		s.wait(q)
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
	q.in.kick(q)
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
		s.wait(q)
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
	q.room.kick(q)
}

// looks is how many times look polls in one call of C, which takes some 5 µs.
const looks = 64

// SetBusyPoll sets how long Wait polls before it parks; see rdma.BusyPoller.
func (q *QueuePair) SetBusyPoll(d time.Duration) { q.in.spin.SetBusyPoll(d) }
