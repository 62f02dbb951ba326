//go:build linux

package shm

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// fill makes a Busy, and returns how many messages it took.
func fill(t *testing.T, a *QueuePair) (n int) {
	t.Helper()
	for !a.Busy() {
		sent, err := a.PostSend([]rdma.SendWR{{Payload: make([]byte, 10_000)}})
		require.NoError(t, err)
		n += sent
	}
	return n
}

// take receives n messages at q.
func take(t *testing.T, q *QueuePair, n int) {
	t.Helper()
	var wcs [16]rdma.Completion
	for n > 0 {
		got, err := q.Poll(wcs[:min(n, len(wcs))])
		require.NoError(t, err)
		for i := range got {
			wcs[i].Buffer.Release()
		}
		n -= got
	}
}

// TestPollRoom: PollRoom finds room, and a message if the caller receives.
func TestPollRoom(t *testing.T) {
	if runtime.GOMAXPROCS(0) == 1 {
		t.Skip("missing: a second processor, without which PollRoom does not poll")
	}
	a, b := pairOf(t, testConfig)
	defer a.Close()
	defer b.Close()
	a.ProvideReceive(64, 64<<10)
	b.ProvideReceive(64, 64<<10)
	assert.True(t, a.PollRoom(true), "it is not Busy")

	n := fill(t, a)
	take(t, b, n)
	assert.True(t, a.PollRoom(false))
	assert.False(t, a.Busy())

	n = fill(t, a)
	sent, err := b.PostSend([]rdma.SendWR{{Payload: []byte("news")}})
	require.NoError(t, err)
	require.Equal(t, 1, sent)
	assert.True(t, a.PollRoom(true))
	assert.True(t, a.Busy())
	assert.False(t, a.PollRoom(false), "a caller that does not receive looks for room only")
	take(t, a, 1)
	take(t, b, n)
	require.NoError(t, a.WaitRoom())
	assert.False(t, a.Busy())

	fill(t, a)
	require.NoError(t, b.Close())
	for a.PollRoom(false) && a.Busy() {
		// the end of the peer counts as room, and ends the sending half
	}
	assert.Error(t, a.WaitRoom())
}

// TestPollRoomDoesNotPoll if the program does not want it to.
func TestPollRoomDoesNotPoll(t *testing.T) {
	a, b := pairOf(t, testConfig)
	defer a.Close()
	defer b.Close()
	a.ProvideReceive(64, 64<<10)
	b.ProvideReceive(64, 64<<10)
	a.SetBusyPoll(-1)
	n := fill(t, a)
	take(t, b, n)
	assert.True(t, a.PollRoom(false), "there is room already")
	fill(t, a)
	sent, err := b.PostSend([]rdma.SendWR{{Payload: []byte("news")}})
	require.NoError(t, err)
	require.Equal(t, 1, sent)
	assert.False(t, a.PollRoom(true), "a first look would have found the message")
}
