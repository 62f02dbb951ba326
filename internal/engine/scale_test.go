package engine

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/observe"
)

// TestManyConnections echo what takes many messages, all at once, and leave no goroutine, connection or promised memory
// behind. Both ends are in this process, so that both are counted.
func TestManyConnections(t *testing.T) {
	conns, size := 1000, 1<<20
	if testing.Short() {
		conns, size = 150, 128<<10
	}
	ln, err := engineListen()
	require.NoError(t, err)
	defer ln.Close()
	var goroutines int
	require.Eventually(t, func() bool { // those of earlier tests have gone
		was := goroutines
		goroutines = runtime.NumGoroutine()
		return goroutines == was
	}, soon, 50*time.Millisecond)
	before := observe.Totals()

	connectMany(t, ln, conns, size)
	assert.Eventually(t, func() bool {
		now := observe.Totals()
		return runtime.NumGoroutine() <= goroutines && now.Open <= before.Open && now.Closing == 0 && now.Memory <= before.Memory
	}, soon, 10*time.Millisecond)
}

// connectMany opens so many connections at once, each of which has so many bytes echoed, and closes them.
func connectMany(t *testing.T, ln net.Listener, conns, size int) {
	t.Helper()
	var calls, dialled sync.WaitGroup
	dialled.Add(conns)
	calls.Go(func() {
		for range conns {
			c, err := ln.Accept()
			if !assert.NoError(t, err) {
				return
			}
			calls.Go(func() {
				defer c.Close()
				_, err := io.Copy(c, c)
				assert.NoError(t, err)
			})
		}
	})
	for i := range conns {
		calls.Go(func() {
			c, err := engineDial(ln.Addr().String())
			dialled.Done()
			if !assert.NoError(t, err) {
				return
			}
			defer c.Close()
			dialled.Wait() // all are there at once
			c.SetDeadline(time.Now().Add(5 * time.Minute))
			data := streamAt(i, size)
			var writing sync.WaitGroup
			writing.Go(func() {
				_, err := c.Write(data)
				assert.NoError(t, err)
				assert.NoError(t, engineOf(t, c).CloseWrite())
			})
			hash := sha256.New()
			n, err := io.Copy(hash, c)
			assert.NoError(t, err)
			assert.EqualValues(t, size, n)
			assert.Equal(t, sha256.Sum256(data), [sha256.Size]byte(hash.Sum(nil)))
			writing.Wait()
		})
	}
	calls.Wait()
}

// TestBothWriteBeforeTheyRead what TCP's buffers would hold.
func TestBothWriteBeforeTheyRead(t *testing.T) {
	for _, size := range []int{200 << 10, 20_000, 4096, 64, 1} {
		t.Run(fmt.Sprint("Writes of ", size), func(t *testing.T) {
			total := 200 << 10
			if testing.Short() {
				total = min(total, size*20_000)
			}
			c, s := pair(t)
			var written, calls sync.WaitGroup
			written.Add(2)
			for _, c := range []*Conn{c, s} {
				calls.Go(func() {
					_, err := writeStream(c, 0, total, size)
					assert.NoError(t, err)
					written.Done()
					written.Wait()
					_, err = readStream(c, 0, total, 10_000)
					assert.NoError(t, err)
				})
			}
			calls.Wait()
		})
	}
}

// TestBothRunAhead has both programs write more than they read, in small Writes, until 4.6 MB
// are unread at each end. TCP carries that.
func TestBothRunAhead(t *testing.T) {
	const size, each = 64, 4
	turns := 24_000
	if testing.Short() {
		turns = 3_000
	}
	c, s := pair(t)
	var calls sync.WaitGroup
	for _, c := range []*Conn{c, s} {
		require.NoError(t, c.SetDeadline(time.Now().Add(3*time.Minute)))
		calls.Go(func() {
			for i := range turns {
				if _, err := writeStream(c, i*each*size, (i+1)*each*size, size); !assert.NoError(t, err, "turn %d", i) {
					return
				}
				if _, err := readStream(c, i*size, (i+1)*size, size); !assert.NoError(t, err, "turn %d", i) {
					return
				}
			}
			_, err := readStream(c, turns*size, turns*each*size, 10_000)
			assert.NoError(t, err)
		})
	}
	calls.Wait()
}

// TestPeerInNoCallTakesWhatIsWritten though it has long ceased to call.
func TestPeerInNoCallTakesWhatIsWritten(t *testing.T) {
	for _, v := range []struct{ total, size int }{
		{200 << 10, 200 << 10}, {200 << 10, 64}, {200 << 10, 1}, {800 << 10, 1500},
	} {
		if testing.Short() {
			v.total = min(v.total, v.size*20_000)
		}
		t.Run(fmt.Sprintf("%d in Writes of %d", v.total, v.size), func(t *testing.T) {
			c, s := pair(t)
			_, err := writeStream(c, 0, v.total, v.size)
			require.NoError(t, err)
			n, err := readStream(s, 0, v.total, 10_000)
			assert.NoError(t, err)
			assert.Equal(t, v.total, n)
		})
	}
}

// TestSmallMessagesHoldNoBuffers has many more messages come than there are
// buffers, to a program that calls nothing: the background poller gathers them.
func TestSmallMessagesHoldNoBuffers(t *testing.T) {
	const writes, size = 4 * RecvBuffers, 10
	c, s := pair(t)
	for i := range writes {
		_, err := c.Write(streamAt(i*size, size))
		require.NoError(t, err, "Write %d", i)
	}
	assert.GreaterOrEqual(t, c.Stats().BcopySent.Messages, uint64(writes)) // an advertised Write's bytes may come in two
	n, err := readStream(s, 0, writes*size, 1000)
	assert.NoError(t, err)
	assert.Equal(t, writes*size, n)
}

// TestIdleBetweenWrites has each burst of Writes find a peer in no call on a
// connection that was idle.
func TestIdleBetweenWrites(t *testing.T) {
	t.Setenv(thresholdVariable, "-1") // or what is unread may be with the writer
	c, s := pair(t)
	off := 0
	for i := range 10 {
		var err error
		off, err = writeStream(c, off, off+20<<10, 64)
		require.NoError(t, err, "burst %d", i)
		require.Eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.poll.background != absent && s.poll.leader == parked && s.session.Unread() == off
		}, soon, time.Millisecond)
	}
	_, err := readStream(s, 0, off, 10_000)
	assert.NoError(t, err)
}

// buffers is how large the private buffers of one direction are, as its two ends
// see it.
func buffers(from, to *Conn) (grown bool, size, target int) {
	from.mu.Lock()
	grown = from.session.Grown()
	from.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	return grown, to.session.BufferSize(), to.session.Target()
}

// passIdleTicks has the idle monitor take the connections for idle at its next visit.
func passIdleTicks(conns ...*Conn) {
	for _, c := range conns {
		c.mu.Lock()
		if c.idle.activity == c.poll.activity && c.idle.ticks < idleTicks {
			c.idle.ticks = idleTicks
		}
		c.mu.Unlock()
	}
}

func TestBuffersGrowWithUseAndShrinkWhenIdle(t *testing.T) {
	t.Setenv(thresholdVariable, "-1")
	c, s := pair(t)
	grown, size, target := buffers(c, s)
	require.False(t, grown)
	require.Equal(t, recvSize, size)
	require.Equal(t, RecvBuffers, target)

	off := 0
	send := func(n, size int) {
		var calls sync.WaitGroup
		from := off
		off += n
		calls.Go(func() {
			_, err := writeStream(c, from, off, size)
			assert.NoError(t, err)
		})
		_, err := readStream(s, from, off, 100_000)
		assert.NoError(t, err)
		calls.Wait()
	}
	for range 2 {
		send(10<<10, 1000) // not enough to be one large Write when it is coalesced
		grown, _, _ = buffers(c, s)
		assert.False(t, grown, "small Writes need no large buffers")

		send(8<<20, 1<<20)
		grown, size, target = buffers(c, s)
		assert.True(t, grown)
		assert.Greater(t, size, 2*recvSize)
		assert.Less(t, target, RecvBuffers, "larger ones are fewer")
		grown, size, _ = buffers(s, c)
		assert.False(t, grown, "the other direction is not used")
		assert.Equal(t, recvSize, size)

		require.Eventually(t, func() bool {
			passIdleTicks(c, s)
			grown, size, target := buffers(c, s)
			return !grown && size == recvSize && target == RecvBuffers
		}, soon, 10*time.Millisecond)
	}
	send(8<<20, 1<<20)
}
