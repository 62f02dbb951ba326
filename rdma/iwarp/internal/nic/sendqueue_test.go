package nic

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

// channel is a device whose channel has room when the test says so.
type channel struct {
	SendQueue
	queued int  // pieces of work
	reply  int  // of them that do not keep the device busy
	woken  bool // WakeCarryLocked was called
	room   *sync.Cond
	free   int
	log    []string // who carried
}

func newChannel() *channel {
	c := new(channel)
	c.room = sync.NewCond(new(sync.Mutex))
	return c
}

func (c *channel) post(n int) {
	c.Lock()
	defer c.Unlock()
	c.queued += n
	c.SetBusyLocked(c.queued > c.reply)
}

// give makes room for n pieces of work.
func (c *channel) give(n int) {
	c.room.L.Lock()
	c.free += n
	c.room.L.Unlock()
	c.room.Broadcast()
}

func (c *channel) CarryLocked(forRoom bool) {
	who := "pump"
	if forRoom {
		who = "caller"
	}
	c.log = append(c.log, who)
	c.BeginCarryLocked()
	c.room.L.Lock()
	for c.free == 0 && !c.woken {
		c.room.Wait()
	}
	n := c.free
	c.free, c.woken = 0, false
	c.room.L.Unlock()
	c.EndCarry()
	c.queued -= min(n, c.queued)
	c.SetBusyLocked(c.Err == nil && c.queued > c.reply)
	if forRoom {
		c.StartPumpLocked(c)
	}
}

func (c *channel) PendingLocked() bool { return c.Err == nil && c.queued > 0 }

func (c *channel) WakeCarryLocked() {
	c.room.L.Lock()
	c.woken = true
	c.room.L.Unlock()
	c.room.Broadcast()
}

// wait calls WaitRoom in a goroutine.
func wait(c *channel) <-chan error {
	done := make(chan error, 1)
	go func() { done <- c.WaitRoom(c) }()
	synctest.Wait()
	return done
}

func assertWaits(t *testing.T, done <-chan error) {
	t.Helper()
	synctest.Wait()
	assert.Empty(t, done)
}

// TestWaitRoomCarries: the caller of WaitRoom carries, and returns when the device is not busy.
func TestWaitRoomCarries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChannel()
		assert.NoError(t, c.WaitRoom(c))
		c.post(2)
		done := wait(c)
		c.give(1)
		assertWaits(t, done)
		c.give(1)
		assert.NoError(t, <-done)
		c.WaitPump()
		assert.False(t, c.Busy())
		assert.Equal(t, "caller", c.log[0])
	})
}

// TestWaitRoomLeavesTheRestToThePump: what does not keep the device busy is still carried after
// WaitRoom has returned.
func TestWaitRoomLeavesTheRestToThePump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChannel()
		c.reply = 1
		c.post(2)
		done := wait(c)
		c.give(1)
		assert.NoError(t, <-done)
		c.give(1)
		c.WaitPump()
		assert.Zero(t, c.queued)
		assert.Equal(t, []string{"caller", "pump"}, c.log)
	})
}

// TestFlushCarries: there is one pump, while WaitRoom waits for it, and it ends when nothing is
// left.
func TestFlushCarries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChannel()
		c.Flush(c) // has nothing to do
		c.WaitPump()
		c.post(2)
		c.Flush(c)
		c.Flush(c)
		done := wait(c)
		c.give(1)
		assertWaits(t, done)
		c.give(1)
		assert.NoError(t, <-done)
		c.WaitPump()
		assert.Equal(t, []string{"pump", "pump"}, c.log)
	})
}

// TestPumpAfterABubble, of a queue that has had one in the bubble.
func TestPumpAfterABubble(t *testing.T) {
	c := newChannel()
	c.Make()
	carry := func() {
		c.post(1)
		c.give(1)
		c.Flush(c)
	}
	synctest.Test(t, func(*testing.T) { carry() })
	c.WaitPump()
	carry()
	c.WaitPump()
	assert.Equal(t, []string{"pump", "pump"}, c.log)
}

// roomy is a channel that has room when the pump looks: it carries without parking.
type roomy struct{ *channel }

func (r roomy) CarryLocked(bool) {
	r.queued = 0
	r.SetBusyLocked(false)
}

// TestPumpNeedNotPark: a call of WaitRoom that waits for the pump returns also if the pump finds
// room at once.
func TestPumpNeedNotPark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChannel()
		c.post(1)
		c.Lock()
		c.Carrying = true // the pump is about to run
		c.Unlock()
		done := wait(c)
		assertWaits(t, done)
		c.Lock()
		c.Carrying = false
		c.StartPumpLocked(roomy{c})
		c.Unlock()
		synctest.Wait()
		assert.Len(t, done, 1)
		c.Lock()
		c.BroadcastLocked()
		c.Unlock()
		c.WaitPump()
	})
}

// TestWakeRoom: WakeRoom ends WaitRoom while it carries, while it waits for the pump, and before
// it begins, and each time once.
func TestWakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChannel()
		c.post(1)
		c.WakeRoom(c)
		assert.NoError(t, <-wait(c))
		done := wait(c)
		assertWaits(t, done)
		c.WakeRoom(c)
		assert.NoError(t, <-done)
		done = wait(c)
		assertWaits(t, done)
		c.WakeRoom(c)
		assert.NoError(t, <-done)
		assert.True(t, c.Busy())
		c.give(1)
		c.WaitPump()
	})
}

// TestFail: the first error stands, and ends WaitRoom.
func TestFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChannel()
		c.post(1)
		c.Flush(c)
		done := wait(c)
		first := errors.New("first")
		c.Lock()
		assert.True(t, c.FailLocked(first))
		assert.False(t, c.FailLocked(errors.New("second")))
		c.Unlock()
		assert.Equal(t, first, <-done)
		assert.False(t, c.Busy())
		assert.Equal(t, first, c.WaitRoom(c))
		c.give(1)
		c.WaitPump()
	})
}
