package shm

import (
	"bytes"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// carry puts bytes through a segment in both directions.
func carry(t *testing.T, made, opened *Segment, b []byte) {
	t.Helper()
	for _, way := range [][2]*Segment{{made, opened}, {opened, made}} {
		out, in := way[0].Out(), way[1].In()
		got := make([]byte, len(b))
		for sent := 0; sent < len(b); {
			n, err := out.Put(b[sent:])
			require.NoError(t, err)
			k, err := in.Take(got[sent:])
			require.NoError(t, err)
			require.Equal(t, n, k)
			sent += n
		}
		require.Equal(t, b, got)
		way[0].OutGate().Join(3)
	}
}

// forget makes the pool empty, before and after a test.
func forget(t *testing.T) {
	Forget()
	t.Cleanup(func() { Forget() })
}

var secret = bytes.Repeat([]byte("secret"), 100)

// TestSegmentIsUsedAgain: two connections of the same processes, one after the other, use the same memory, and the second
// finds nothing of the first.
func TestSegmentIsUsedAgain(t *testing.T) {
	forget(t)
	peer := Peer{PID: 1}
	made, opened := segments(t, peer)
	memory := [2]*byte{&made.mem[0], &opened.mem[0]}
	for range 3 {
		carry(t, made, opened, secret)
		opened.Leave()
		made.Release()
		opened.Release()
		made, opened = segments(t, peer)
		assert.Equal(t, memory, [2]*byte{&made.mem[0], &opened.mem[0]})
		assert.False(t, opened.Leaving())
		assert.NotContains(t, string(made.mem[:controlLen+small]), "secret")
		assert.NotContains(t, string(made.areas(1)[0]), "secret")
		assert.Equal(t, made.InGate().Load(), opened.OutGate().Load())
		assert.Zero(t, opened.OutGate().Load().Sent())
	}
	made.Unmap()
	opened.Unmap()
	assert.Empty(t, pool.made)
	assert.Empty(t, pool.opened)
}

// TestSegmentIsNotUsedAgain: while the other end may use the memory, for another process, or if it was more than three
// pages, a connection gets a new segment.
func TestSegmentIsNotUsedAgain(t *testing.T) {
	for name, v := range map[string]struct {
		peer, next Peer
		bytes      int
		stays      bool
	}{
		"the peer has not left": {peer: Peer{PID: 1}, next: Peer{PID: 1}, stays: true},
		"another process":       {peer: Peer{PID: 1}, next: Peer{PID: 2}},
		"no process":            {},
		"a stream":              {peer: Peer{PID: 1}, next: Peer{PID: 1}, bytes: small + 1},
	} {
		t.Run(name, func(t *testing.T) {
			forget(t)
			made, opened := segments(t, v.peer)
			out := opened.Out()
			out.Widen()
			_, err := out.Put(make([]byte, v.bytes))
			require.NoError(t, err)
			id := opened.id
			if !v.stays {
				opened.Release()
			}
			made.Release()
			made, again := segments(t, v.next)
			assert.NotEqual(t, id, again.id)
			made.Unmap()
			again.Unmap()
			if v.stays {
				opened.Unmap()
			}
		})
	}
}

// TestOpenedByAnother: the end that did not make a segment does not take its mapping of a file for another peer's.
func TestOpenedByAnother(t *testing.T) {
	forget(t)
	made, opened := segments(t, Peer{PID: 1})
	before := &opened.mem[0]
	file := made.File()
	opened.Release()
	other, err := Open(Peer{PID: 2}, file)
	require.NoError(t, err)
	assert.NotSame(t, before, &other.mem[0])
	other.Unmap()
	made.Unmap()
}

// TestPoolIsSmall: of many connections at once, the last ones' segments are kept, and no descriptors of the others.
func TestPoolIsSmall(t *testing.T) {
	forget(t)
	peer := Peer{PID: 1}
	var made, opened []*Segment
	for range mostKept + 3 {
		m, o := segments(t, peer)
		made, opened = append(made, m), append(opened, o)
	}
	for i := range made {
		if i < 3 {
			assert.Negative(t, made[i].fd)
		}
		opened[i].Release()
		made[i].Release()
	}
	assert.Equal(t, made[3:], pool.made)
	assert.Equal(t, opened[3:], pool.opened)
	for i := range made {
		assert.Equal(t, i < 3, made[i].mem == nil)
	}
	extra, file := segments(t, Peer{PID: 2})
	assert.Len(t, pool.made, mostKept)
	assert.Nil(t, made[3].mem, "the oldest")
	extra.Unmap()
	file.Unmap()
}

// TestPoolLeavesFileToSender: the pool does not close the descriptor of a segment that is used again before it was sent.
func TestPoolLeavesFileToSender(t *testing.T) {
	for name, v := range map[string]func(t *testing.T){
		"Forget": func(*testing.T) { Forget() },
		"others": func(t *testing.T) {
			for range mostKept {
				made, opened := segments(t, Peer{PID: 2})
				defer opened.Unmap()
				defer made.Unmap()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			forget(t)
			peer := Peer{PID: 1}
			made, opened := segments(t, peer)
			id := opened.id
			opened.Release()
			made.Release()
			made, err := New(peer)
			require.NoError(t, err)
			defer made.Unmap()
			v(t)
			opened, err = Open(peer, made.File())
			require.NoError(t, err)
			defer opened.Unmap()
			assert.Equal(t, id, opened.id)
			made.Sent()
		})
	}
}

// TestPoolManyAtOnce: connections that end at the same time as others begin do not share memory, and none loses it.
func TestPoolManyAtOnce(t *testing.T) {
	forget(t)
	var wg sync.WaitGroup
	for i := range mostKept {
		wg.Go(func() {
			for range 5000 {
				made, err := New(Peer{PID: 1})
				if !assert.NoError(t, err) {
					return
				}
				opened, err := Open(Peer{PID: 1}, made.File())
				if !assert.NoError(t, err) {
					return
				}
				made.Sent()
				out, in, b := made.Out(), opened.In(), [8]byte{}
				_, err = out.Put([]byte{byte(i)})
				assert.NoError(t, err)
				runtime.Gosched()
				n, err := in.Take(b[:])
				assert.NoError(t, err)
				assert.Equal(t, []byte{byte(i)}, b[:n])
				opened.Release()
				made.Release()
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
}
