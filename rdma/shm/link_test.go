//go:build linux

package shm

import (
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
)

// emptied has the test begin and end without idle channels.
func emptied(t *testing.T) {
	CloseIdle()
	t.Cleanup(func() {
		CloseIdle()
		dialled.mu.Lock()
		assert.Empty(t, dialled.links)
		dialled.mu.Unlock()
	})
}

// resumed is the next use of the channel of the place.
func resumed(t *testing.T, p *place, at string) (a, b *QueuePair) {
	t.Helper()
	idle := device{}.Idle(at, stepConfig)
	require.NotNil(t, idle)
	r, err := p.Resume(rdma.Peer{}, idle.Ticket(), 3)
	require.NoError(t, err)
	q, err := idle.Take(2)
	require.NoError(t, err)
	return q.(*QueuePair), r.(*QueuePair)
}

// says has one end send a message, and the other end receive it.
func says(t *testing.T, a, b *QueuePair, text string) {
	t.Helper()
	n, err := a.PostSend([]rdma.SendWR{{Header: []byte("h"), Payload: []byte(text)}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	var wcs [1]rdma.Completion
	n, err = b.Wait(wcs[:])
	require.NoError(t, err)
	require.Equal(t, 1, n)
	assert.Equal(t, "h"+text, string(wcs[0].Buffer.Bytes))
	wcs[0].Buffer.Release()
}

func TestChannelServesManyConnections(t *testing.T) {
	emptied(t)
	p := newPlace(t)
	before := descriptors(t)
	a, b := opened(t, p, "here")
	link := a.link
	for i := range 20 {
		if i > 0 {
			a, b = resumed(t, p, "here")
			require.Same(t, link, a.link)
			assert.Equal(t, 2, a.Limits().ORD)
			assert.Equal(t, 3, b.Limits().ORD)
		}
		// Some of it in the big ring, some not.
		says(t, a, b, fmt.Sprint("ping ", i))
		if i%2 == 0 {
			says(t, b, a, string(make([]byte, 3000)))
		}
		says(t, b, a, fmt.Sprint("pong ", i))
		require.NoError(t, a.Drain(time.Minute))
		require.NoError(t, a.Close())
		assert.Nil(t, device{}.Idle("here", stepConfig), "the other end has not left")
		var wcs [1]rdma.Completion
		_, err := b.Wait(wcs[:])
		require.ErrorIs(t, err, io.EOF)
		require.NoError(t, b.Close())
	}
	assert.Equal(t, before+2, descriptors(t))
	assert.Nil(t, device{}.Idle("there", stepConfig))
}

// closed closes both ends in good order.
func closed(t *testing.T, a, b *QueuePair) {
	t.Helper()
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// TestNothingOfTheOldConnection is found in the next one: no message that was not
// read, no STag, no Read, no ring that follows.
func TestNothingOfTheOldConnection(t *testing.T) {
	emptied(t)
	p := newPlace(t)
	a, b := opened(t, p, "here")
	region, err := b.Register(make([]byte, 8), rdma.RemoteRead|rdma.RemoteWrite)
	require.NoError(t, err)
	for range 3 {
		_, err := a.PostSend([]rdma.SendWR{{Header: []byte("unread"), Payload: make([]byte, 3000)}})
		require.NoError(t, err)
	}
	require.NoError(t, a.PostRead(rdma.ReadWR{ID: 1, Local: make([]byte, 8), STag: region.STag}))
	old := a.area.key(0)
	closed(t, a, b)
	_, err = a.PostSend([]rdma.SendWR{{Header: []byte("late")}})
	assert.Error(t, err)
	a.Wake()
	b.WakeRoom()
	a.Shrink()

	a, b = resumed(t, p, "here")
	assert.NotEqual(t, old, a.area.key(0))
	var wcs [1]rdma.Completion
	for _, q := range []*QueuePair{a, b} {
		n, err := q.Poll(wcs[:])
		require.NoError(t, err)
		assert.Zero(t, n)
	}
	says(t, a, b, "new")
	says(t, b, a, "new")
	require.NoError(t, a.PostRead(rdma.ReadWR{ID: 2, Local: make([]byte, 8), STag: region.STag}))
	_, err = b.Wait(wcs[:])
	assert.ErrorContains(t, err, "is not registered here")
	a.Abort()
	b.Abort()
}

func TestTicket(t *testing.T) {
	emptied(t)
	p := newPlace(t)
	offer := func() (rdma.Offer, rdma.Ticket) {
		a, b := opened(t, p, "here")
		closed(t, a, b)
		idle := device{}.Idle("here", stepConfig)
		require.NotNil(t, idle)
		return idle, idle.Ticket()
	}
	refused := func(peer rdma.Peer, ticket rdma.Ticket) {
		t.Helper()
		_, err := p.Resume(peer, ticket, 1)
		assert.Error(t, err)
	}
	t.Run("twice", func(t *testing.T) {
		idle, ticket := offer()
		q, err := p.Resume(rdma.Peer{PID: os.Getpid()}, ticket, 1)
		require.NoError(t, err)
		refused(rdma.Peer{}, ticket)
		idle.Drop()
		assert.Error(t, ends(t, q.(*QueuePair)))
		q.Abort()
	})
	t.Run("of another use", func(t *testing.T) {
		idle, ticket := offer()
		ticket[31]++
		refused(rdma.Peer{}, ticket)
		ticket[31]--
		refused(rdma.Peer{}, ticket) // it is none of ours: the channel is given up
		_, err := idle.Take(1)
		assert.ErrorContains(t, err, "did not resume")
		idle.Drop()
	})
	t.Run("of another channel", func(t *testing.T) {
		idle, ticket := offer()
		ticket[0]++
		refused(rdma.Peer{}, ticket)
		idle.Drop()
	})
	t.Run("another process", func(t *testing.T) {
		idle, ticket := offer()
		refused(rdma.Peer{PID: 1}, ticket)
		idle.Drop()
	})
	t.Run("of a channel that was dropped", func(t *testing.T) {
		idle, ticket := offer()
		idle.Drop()
		refused(rdma.Peer{}, ticket)
	})
}

// TestResumedByNobody: a peer that has not taken the channel has not resumed it, whatever
// it says elsewhere.
func TestResumedByNobody(t *testing.T) {
	for name, taken := range map[string]uint32{"the use that has ended": 1, "a use to come": 3} {
		t.Run(name, func(t *testing.T) {
			emptied(t)
			p := newPlace(t)
			a, b := opened(t, p, "here")
			closed(t, a, b)
			idle := device{}.Idle("here", stepConfig)
			require.NotNil(t, idle)
			r, err := p.Resume(rdma.Peer{}, idle.Ticket(), 1)
			require.NoError(t, err)
			defer r.Abort()
			r.(*QueuePair).mine().taken.Store(taken)
			_, err = idle.Take(1)
			assert.ErrorContains(t, err, "did not resume")
			idle.Drop()
		})
	}
}

// TestNotKept: only a channel that has come to a good end is, for a peer that may
// have it.
func TestNotKept(t *testing.T) {
	for _, v := range []struct {
		name string
		end  func(a, b *QueuePair)
	}{
		{"aborted here", func(a, b *QueuePair) { a.Abort(); b.Close() }},
		{"aborted there", func(a, b *QueuePair) { b.Abort(); a.Close() }},
		{"closed here alone", func(a, b *QueuePair) { a.Close() }},
		{"the peer has died", func(a, b *QueuePair) { hangUp(b.bell.conn); a.Close() }},
		{"the peer has died since", func(a, b *QueuePair) { a.Close(); b.Close(); hangUp(b.link.conn) }},
		{"a rule was broken", func(a, b *QueuePair) {
			a.mine().state.Store(77)
			b.Poll(make([]rdma.Completion, 1))
			a.Close()
			b.Close()
		}},
	} {
		t.Run(v.name, func(t *testing.T) {
			emptied(t)
			p := newPlace(t)
			a, b := opened(t, p, "here")
			v.end(a, b)
			assert.Nil(t, device{}.Idle("here", stepConfig))
			b.Abort()
		})
	}
	t.Run("another user", func(t *testing.T) {
		emptied(t)
		p := newPlace(t)
		a, b := opened(t, p, "here")
		a.link.uid++ // as one that Config.PeerUIDs names
		closed(t, a, b)
		assert.Nil(t, device{}.Idle("here", stepConfig))
		allows := stepConfig
		allows.UIDs = []int{os.Geteuid() + 1}
		idle := device{}.Idle("here", allows)
		require.NotNil(t, idle)
		idle.Drop()
	})
	t.Run("another wish", func(t *testing.T) {
		emptied(t)
		p := newPlace(t)
		a, b := opened(t, p, "here")
		closed(t, a, b)
		copies := stepConfig
		copies.ZeroCopy = false
		assert.Nil(t, device{}.Idle("here", copies), "it has reach")
		idle := device{}.Idle("here", stepConfig)
		require.NotNil(t, idle)
		idle.Drop()
	})
}

// hangUp is what becomes of a socket whose process dies.
func hangUp(conn *os.File) {
	rc, err := conn.SyscallConn()
	if err == nil {
		rc.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
}

// TestPoolIsBounded: few channels are kept, however many were open.
func TestPoolIsBounded(t *testing.T) {
	emptied(t)
	p := newPlace(t)
	before := descriptors(t)
	var all [2 * mostAt][2]*QueuePair
	for i := range all {
		all[i][0], all[i][1] = opened(t, p, "here")
	}
	for i := range all {
		closed(t, all[i][0], all[i][1])
	}
	assert.Len(t, dialled.links, mostAt)
	assert.LessOrEqual(t, descriptors(t), before+mostAt+len(all))
	p.Close() // ends what it has kept
	assert.Nil(t, device{}.Idle("here", stepConfig))
	assert.LessOrEqual(t, descriptors(t), before)
}

// TestOwnProcess: two ends in one process do not look for each other, whatever the program
// says; what one takes of the processors the other lacks.
func TestOwnProcess(t *testing.T) {
	emptied(t)
	p := newPlace(t)
	a, b := opened(t, p, "here")
	for _, q := range []*QueuePair{a, b} {
		q.SetBusyPoll(time.Millisecond)
		looked := false
		q.rx.spin.Spin(spin.Looks, func() bool { looked = true; return true }, func() bool { return true })
		q.tx.spin.Spin(func() bool { looked = true; return true })
		assert.False(t, looked)
	}
	require.NoError(t, a.Abort())
	require.NoError(t, b.Abort())
}
