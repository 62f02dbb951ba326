//go:build linux

package shm

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
)

// TestAppendIsTooLate: Append refuses when the message was taken, even if it could still grow.
func TestAppendIsTooLate(t *testing.T) {
	a, b := appendPair(t)
	posted(t, a, "open", 100)
	comes(t, b, "open")
	assert.False(t, a.Append([]byte("x")))
	comes(t, b)
}

// TestPayloadIsNoHeader: a message that was posted after an open one may have payload where the header
// of an open one would be if it were the last.
func TestPayloadIsNoHeader(t *testing.T) {
	a, b := appendPair(t)
	posted(t, a, "open", 100)
	p := &a.tx.ring
	at := p.pos + headerLen // where the payload will be, and one space("open") before its end
	text := string(words(stampOf(p.key, at)|header(recordOpen, len("open")), 0))
	posted(t, a, text, 0)
	assert.False(t, a.Append([]byte("x")))
	comes(t, b, "open", text)
}

// TestAppendAtTheLastMoment: while the consumer takes a message that grows, at any moment of that, what
// is appended either arrives or is refused.
func TestAppendAtTheLastMoment(t *testing.T) {
	rounds := 4000
	if testing.Short() {
		rounds = 300
	}
	a, b := appendPair(t)
	b.ProvideReceive(64, 64<<10)
	first := strings.Repeat("-", openWorth)
	var round, done atomic.Int32
	var grown bool
	wait := func(word *atomic.Int32, value int32) {
		for word.Load() < value {
			runtime.Gosched()
		}
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	defer round.Store(int32(rounds) + 1)
	writing.Go(func() {
		for r := int32(1); ; r++ {
			more := bytes.Repeat([]byte{byte(r)}, 32<<10)
			if wait(&round, r); r > int32(rounds) {
				return
			}
			grown = a.Append(more)
			done.Store(r)
		}
	})
	times := 0
	for r := range int32(rounds) {
		posted(t, a, first, 64<<10)
		round.Store(r + 1)
		for range rand.IntN(100) {
			spin.Pause(1)
		}
		var wcs [2]rdma.Completion
		n, err := b.Poll(wcs[:])
		require.NoError(t, err)
		require.Equal(t, 1, n)
		got := wcs[0].Buffer.Bytes
		wait(&done, r+1)
		more := bytes.Count(got, []byte{byte(r + 1)})
		if byte(r+1) == '-' {
			more -= len(first)
		}
		if grown {
			times++
			require.Equal(t, 32<<10, more, "of what was appended")
		}
		require.Equal(t, len(first)+more, len(got))
		wcs[0].Buffer.Release()
	}
	t.Logf("%d of %d appended", times, rounds)
}

// TestDeathOnAChannelThatServesAgain: what the program has read of an earlier connection does not count
// for this one.
func TestDeathOnAChannelThatServesAgain(t *testing.T) {
	emptied(t)
	p := newPlace(t)
	a, b := opened(t, p, "here")
	says(t, a, b, "hello")
	b.ReportRead(len("hello"))
	closed(t, a, b)
	a, b = resumed(t, p, "here")
	inTwoProcesses(a, b)
	says(t, a, b, "HELLO") // the program does not read it
	b.bell.conn.Close()    // as if its process had been killed
	assert.ErrorIs(t, ends(t, a), syscall.ECONNRESET)
	a.Abort()
	b.Abort()
}
