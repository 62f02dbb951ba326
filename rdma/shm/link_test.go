//go:build linux

package shm

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// dialledAt opens a channel that is kept.
func dialledAt(t *testing.T, p *place, at string) (a, b *QueuePair) {
	t.Helper()
	i := invite(t, p, rdma.Peer{})
	address := i.Address()
	address.At = at
	q, err := device{}.Dial(t.Context(), address, stepConfig, []byte("x"), settle("re: x"))
	require.NoError(t, err)
	r, err := i.Take(t.Context())
	require.NoError(t, err)
	return q.(*QueuePair), r.(*QueuePair)
}

// resumed is the next use of the channel of the place.
func resumed(t *testing.T, p *place, at string) (a, b *QueuePair) {
	t.Helper()
	idle := device{}.Idle(at, stepConfig)
	require.NotNil(t, idle)
	r, err := p.Resume(rdma.Peer{}, idle.Ticket(), 3)
	require.NoError(t, err)
	q, err := idle.Resume(2)
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
	a, b := dialledAt(t, p, "here")
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
		require.NoError(t, a.Drain(time.Second))
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
