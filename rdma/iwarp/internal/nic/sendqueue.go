package nic

import (
	"sync/atomic"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/lockorder"
)

// SendQueue is the back-pressure of a device that queues work in this process when its
// channel is full. The device embeds it in its sending half; the mutex guards the device's
// queue as well.
//
// At most one goroutine carries: it parks, without the mutex, until the channel has room, and
// then moves the queue on. It is either in WaitRoom or the pump, a goroutine that exists only
// while work is queued and no call of WaitRoom carries it.
type SendQueue struct {
	lockorder.Mutex[lockorder.DeviceSend]

	// The mutex guards these.
	Err      error       // why nothing can be sent any more; nil: it can
	cond     bubble.Cond // signalled when Carrying, Woken, Err or pumps changes
	Carrying bool
	Woken    bool // WakeRoom was called
	Parked   bool // the caller of WaitRoom is in CarryLocked, or parks in some other way
	Waiting  int8 // calls of WaitRoom
	pumps    int32

	busy atomic.Bool
}

// Carrier is what a SendQueue asks of its device. The mutex is held in every call.
type Carrier interface {
	// CarryLocked parks until the channel has room and moves what is queued, between
	// BeginCarryLocked and EndCarry. It may return early, so the caller checks again. forRoom
	// says that the caller is WaitRoom, which returns when the device is no longer busy.
	CarryLocked(forRoom bool)
	// PendingLocked reports whether the pump has something to carry.
	PendingLocked() bool
	// WakeCarryLocked makes the call of WaitRoom that is Parked return, now or the next time
	// it parks.
	WakeCarryLocked()
}

// Make is called where the queue pair is made.
func (s *SendQueue) Make() { s.cond.Make() }

// Busy reports whether a message with payload would be refused now; see rdma.QueuePair.
func (s *SendQueue) Busy() bool { return s.busy.Load() }

// SetBusyLocked sets what Busy returns.
func (s *SendQueue) SetBusyLocked(busy bool) {
	if busy != s.busy.Load() {
		s.busy.Store(busy)
	}
}

// FailLocked ends the sending half, unless it has ended, and reports whether this call did.
func (s *SendQueue) FailLocked(err error) bool {
	if s.Err != nil {
		return false
	}
	s.Err = err
	s.busy.Store(false)
	s.cond.Broadcast()
	return true
}

// WaitRoom parks until the device is not busy; see rdma.QueuePair.
func (s *SendQueue) WaitRoom(c Carrier) error {
	s.Lock()
	defer s.Unlock()
	s.Waiting++
	defer func() {
		s.Waiting--
		s.cond.Broadcast()
	}()
	for {
		switch {
		case s.Err != nil:
			return s.Err
		case s.Woken:
			s.Woken = false
			return nil
		case !s.busy.Load():
			return nil
		case s.Carrying:
			s.WaitLocked()
		default:
			s.Parked = true
			c.CarryLocked(true)
			s.Parked = false
		}
	}
}

// WakeRoom makes WaitRoom return; see rdma.QueuePair.
func (s *SendQueue) WakeRoom(c Carrier) {
	s.Lock()
	s.Woken = true
	if s.Parked {
		c.WakeCarryLocked()
	}
	s.cond.Broadcast()
	s.Unlock()
}

// Flush makes the pump carry what is queued; see rdma.QueuePair.
func (s *SendQueue) Flush(c Carrier) {
	s.Lock()
	s.StartPumpLocked(c)
	s.Unlock()
}

// StartPumpLocked starts the pump if work is queued and no goroutine carries it.
func (s *SendQueue) StartPumpLocked(c Carrier) {
	if s.Carrying || !c.PendingLocked() {
		return
	}
	s.Carrying = true // before the goroutine runs, so that there is only one
	s.pumps++
	go func() {
		s.Lock()
		defer s.Unlock()
		s.Carrying = false
		s.cond.Broadcast()                     // CarryLocked may find room at once, and then does not call EndCarry
		for !s.Carrying && c.PendingLocked() { // while it was parked, WaitRoom may have begun to carry
			c.CarryLocked(false)
			for s.Waiting > 0 && !s.busy.Load() && s.Err == nil {
				s.WaitLocked() // the caller of WaitRoom has room now, and is about to leave
			}
		}
		s.pumps--
		s.cond.Broadcast()
	}()
}

// WaitPump waits until there is no pump. After FailLocked none starts, unless the device has
// something left to say.
func (s *SendQueue) WaitPump() {
	s.Lock()
	defer s.Unlock()
	for s.pumps > 0 {
		s.WaitLocked()
	}
}

// BeginCarryLocked starts to carry, and unlocks the mutex.
func (s *SendQueue) BeginCarryLocked() {
	s.Carrying = true
	s.Unlock()
}

// EndCarry locks the mutex again, and ends carrying.
func (s *SendQueue) EndCarry() {
	s.Lock()
	s.Carrying = false
	s.cond.Broadcast()
}

// WaitLocked waits until Carrying, Woken, Err or the number of pumps changes. It may return early.
func (s *SendQueue) WaitLocked() { s.cond.Wait(&s.Mutex) }

// BroadcastLocked ends every WaitLocked.
func (s *SendQueue) BroadcastLocked() { s.cond.Broadcast() }
