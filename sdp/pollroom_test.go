package sdp

import (
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// roomPair is a queue pair in memory that can be Busy, and says how it was polled for room.
type roomPair struct {
	*memPair
	busy  atomic.Bool
	vain  bool        // PollRoom finds nothing; WaitRoom makes room
	polls []bool      // receives of each PollRoom
	waits int         // calls of WaitRoom
	woken atomic.Bool // by WakeRoom
	room  func() bool // called by PollRoom, if not nil; false: there is still no room
	poll  func()      // called by Poll, if not nil
}

func (q *roomPair) Poll(wcs []rdma.Completion) (int, error) {
	if q.poll != nil {
		q.poll()
	}
	return q.memPair.Poll(wcs)
}

func (q *roomPair) Busy() bool { return q.busy.Load() }

func (q *roomPair) PostSend(wrs []rdma.SendWR) (int, error) {
	if q.busy.Load() {
		return 0, nil
	}
	return q.memPair.PostSend(wrs)
}

func (q *roomPair) PollRoom(receives bool) bool {
	q.polls = append(q.polls, receives)
	if q.room == nil || q.room() {
		q.busy.Store(q.vain)
	}
	return !q.vain
}

func (q *roomPair) WaitRoom() error {
	q.waits++
	if !q.woken.Swap(false) {
		q.busy.Store(false)
	}
	return nil
}

func (q *roomPair) WakeRoom() { q.woken.Store(true) }

func newRoomConn(t *testing.T) (*Conn, *roomPair) {
	q := &roomPair{memPair: newMemPair(t, 100)}
	c := memConn(t, q, true, 0, 100)
	t.Cleanup(func() {
		assert.NoError(t, c.SetLinger(0)) // its peer does not answer
		c.Close()
	})
	return c, q
}

// background makes the connection's background poller lead.
func (c *conn) background(t *testing.T) {
	c.mu.Lock()
	c.poll.startBackgroundLocked()
	c.mu.Unlock()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.poll.background && c.poll.parked
	}, soon, time.Millisecond)
}

// TestWriteReceivesWhileItPollsForRoom: no other goroutine polls, so the Write does, and nobody is
// woken for it.
func TestWriteReceivesWhileItPollsForRoom(t *testing.T) {
	c, q := newRoomConn(t)
	data := wire.Message{Header: wire.Header{MID: wire.MIDData, Bufs: recvBuffers, MSeq: 1}, Payload: []byte("news")}
	b := append(data.AppendHeader(nil), data.Payload...)
	q.room = func() bool {
		if len(q.polls) == 1 {
			q.deliver(b, 0) // news, and no room yet
			return false
		}
		return true
	}
	q.busy.Store(true)
	n, err := c.Write([]byte("x"))
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Equal(t, []bool{true, true}, q.polls)
	assert.Zero(t, q.waits)
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.Equal(t, len("news"), c.session.Unread(), "the Write has received it")
	assert.False(t, c.poll.background)
	assert.False(t, c.poll.leading)
}

// TestPollingWriteEndsTheBackgroundPoller: the next Write then leads itself.
func TestPollingWriteEndsTheBackgroundPoller(t *testing.T) {
	c, q := newRoomConn(t)
	c.background(t)
	for range 3 {
		q.busy.Store(true)
		_, err := c.Write([]byte("x"))
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return !c.poll.background && !c.poll.retire
		}, soon, time.Millisecond)
	}
	assert.Equal(t, []bool{false, false, true}, q.polls, "the second finds that another goroutine has polled")
	assert.Zero(t, q.waits)
}

// TestWriteThatPollsInVainWaits, and keeps the background poller: two ends that wait for each
// other's room would otherwise wait for ever.
func TestWriteThatPollsInVainWaits(t *testing.T) {
	c, q := newRoomConn(t)
	q.vain = true
	q.busy.Store(true)
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	assert.Equal(t, 1, q.waits)
	c.mu.Lock()
	assert.True(t, c.poll.background)
	c.poll.retire = true // a Write has asked it to end, and the next one polls in vain
	c.mu.Unlock()
	q.busy.Store(true)
	_, err = c.Write([]byte("x"))
	require.NoError(t, err)
	assert.Equal(t, 2, q.waits)
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.True(t, c.poll.background)
	assert.False(t, c.poll.retire)
}

// TestBackgroundPollerInABubble runs while a Write waits for the device. Over a real device the bubble's
// clock would stand still for as long as it goes on.
func TestBackgroundPollerInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, q := newRoomConn(t)
		q.vain = true
		q.busy.Store(true)
		_, err := c.Write([]byte("x"))
		require.NoError(t, err)
		require.Equal(t, 1, q.waits)
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		assert.False(t, c.poll.background)
	})
}

// TestGoroutineAfterABubble, of a connection that has had one in the bubble.
func TestGoroutineAfterABubble(t *testing.T) {
	c, q := newRoomConn(t)
	c.mu.Lock()
	c.idle.enabled = false // or the monitor may start a background poller before the Write
	idleMonitor.removeLocked(c.conn)
	c.mu.Unlock()
	synctest.Test(t, func(t *testing.T) {
		q.vain = true
		q.busy.Store(true)
		_, err := c.Write([]byte("x"))
		require.NoError(t, err)
	})
	c.background(t)
}

// TestDeadlinePassesWhileAWritePollsForRoom: the Write does not park.
func TestDeadlinePassesWhileAWritePollsForRoom(t *testing.T) {
	c, q := newRoomConn(t)
	q.vain = true
	q.room = func() bool {
		assert.NoError(t, c.SetWriteDeadline(time.Now().Add(-time.Second)))
		return true
	}
	q.busy.Store(true)
	_, err := c.Write([]byte("x"))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// TestDeadlineWhileAWriteReceives what it found while it polled for room: it then waits for room no more.
func TestDeadlineWhileAWriteReceives(t *testing.T) {
	c, q := newRoomConn(t)
	q.vain = true
	q.poll = func() {
		q.poll = nil
		assert.NoError(t, c.SetWriteDeadline(time.Unix(1, 0)))
	}
	q.busy.Store(true)
	_, err := c.Write([]byte("x"))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Nil(t, q.poll)
}
