//go:build linux

package shm

import (
	"bytes"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
)

// posted posts a message that may grow to most bytes.
func posted(t *testing.T, q *QueuePair, text string, most int) {
	t.Helper()
	n, err := q.PostSend([]rdma.SendWR{{Header: []byte(text[:1]), Payload: []byte(text[1:]), Most: most}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// comes requires that exactly these messages have arrived.
func comes(t *testing.T, q *QueuePair, texts ...string) {
	t.Helper()
	var wcs [16]rdma.Completion
	n, err := q.Poll(wcs[:])
	require.NoError(t, err)
	require.Equal(t, len(texts), n)
	for i, wc := range wcs[:n] {
		assert.Equal(t, texts[i], string(wc.Buffer.Bytes))
		wc.Buffer.Release()
	}
}

func appendPair(t *testing.T) (a, b *QueuePair) {
	t.Helper()
	a, b = pairOf(t, testConfig)
	b.ProvideReceive(64, 16<<10)
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return a, b
}

// TestAppend checks what the comment of rdma.Appender says.
func TestAppend(t *testing.T) {
	a, b := appendPair(t)
	assert.False(t, a.Append([]byte("x")), "nothing was posted")
	posted(t, a, "one", 0)
	assert.False(t, a.Append([]byte("x")), "it is complete")
	comes(t, b, "one")

	posted(t, a, "two", 10)
	assert.True(t, a.Append([]byte("+")))
	assert.True(t, a.Append(nil))
	assert.True(t, a.Append([]byte("456789")), "as long as it may be")
	assert.False(t, a.Append([]byte("0")), "longer than it may be")
	comes(t, b, "two+456789")

	posted(t, a, "three", 100)
	posted(t, a, "control", 0)
	assert.False(t, a.Append([]byte("x")), "something was posted after it")
	posted(t, a, "four", 100)
	assert.True(t, a.Append([]byte(".")))
	comes(t, b, "three", "control", "four.")
	comes(t, b)
	assert.EqualValues(t, len("ne"+"wo+456789"+"hree"+"ontrol"+"our."), a.Sent())

	posted(t, a, "five", 100)
	require.NoError(t, a.Close())
	assert.False(t, a.Append([]byte("x")), "it was closed")
	comes(t, b, "five")
}

// TestAppendedBytesOutliveTheSender: appended bytes arrive even if the peer looks only after the sender is gone.
func TestAppendedBytesOutliveTheSender(t *testing.T) {
	q, r := meetRogue(t)
	r.out.putOpen([]byte("h"), []byte("12"))
	require.True(t, r.out.grown([]byte("3456789")))
	r.out.copyIn(r.out.pos-6, []byte("not counted")) // as if it was killed while it appended
	r.conn.Close()
	comes(t, q, "h123456789")
	assert.Equal(t, io.EOF, ends(t, q))
}

// TestOpenRecordThatIsTooLong: such a record ends the channel.
func TestOpenRecordThatIsTooLong(t *testing.T) {
	q, r := meetRogue(t)
	r.says(recordOpen, smallRing, words(1))
	assert.ErrorContains(t, ends(t, q), "in a ring of 4096")
}

// TestAppendFillsTheRing: Append fills the ring and no more, in the small ring and in the big one, and
// refuses before it would overwrite what was not taken.
func TestAppendFillsTheRing(t *testing.T) {
	a, b := appendPair(t)
	var want []byte
	write := func(n int) bool {
		text := bytes.Repeat([]byte{byte(len(want))}, n)
		if a.Append(text) {
			want = append(want, text...)
			return true
		}
		k, err := a.PostSend([]rdma.SendWR{{Payload: text, Most: 16 << 10}})
		require.NoError(t, err)
		if k == 1 {
			want = append(want, text...)
		}
		return k == 1
	}
	for range 3 {
		want = want[:0]
		for write(61) {
		}
		assert.Greater(t, len(want), bigRing*9/10)
		var got []byte
		var wcs [16]rdma.Completion
		for len(got) < len(want) {
			n, err := b.Poll(wcs[:])
			require.NoError(t, err)
			require.NotZero(t, n)
			for _, wc := range wcs[:n] {
				got = append(got, wc.Buffer.Bytes...)
				wc.Buffer.Release()
			}
		}
		require.True(t, bytes.Equal(want, got))
		a.Shrink() // back to the small ring
		assert.True(t, a.tx.ring.atSmall())
	}
}

// TestAppendBesideTheConsumer: every byte arrives once and in order while the consumer takes messages
// that grow.
func TestAppendBesideTheConsumer(t *testing.T) {
	a, b := appendPair(t)
	const total = 5 << 20
	var writing sync.WaitGroup
	writing.Go(func() {
		rng := rand.New(rand.NewPCG(1, 2))
		text := make([]byte, 3000)
		for sent := 0; sent < total; {
			n := min(1+rng.IntN(1+rng.IntN(len(text))), total-sent)
			for i := range n {
				text[i] = byte((sent + i) * 7)
			}
			if a.Append(text[:n]) {
				sent += n
				continue
			}
			k, err := a.PostSend([]rdma.SendWR{{Payload: text[:n], Most: 8 << 10}})
			if !assert.NoError(t, err) {
				return
			}
			if k == 0 {
				assert.NoError(t, a.WaitRoom())
			}
			sent += k * n
		}
	})
	var wcs [8]rdma.Completion
	messages := 0
	for got := 0; got < total; {
		n, err := b.Wait(wcs[:])
		require.NoError(t, err)
		for _, wc := range wcs[:n] {
			for _, c := range wc.Buffer.Bytes {
				if c != byte(got*7) {
					require.Fail(t, "another byte", "%d: %d, not %d", got, c, byte(got*7))
				}
				got++
			}
			wc.Buffer.Release()
			messages++
		}
		if messages%8 == 0 {
			runtime.Gosched()
		}
	}
	writing.Wait()
	assert.EqualValues(t, total, a.Sent())
}
