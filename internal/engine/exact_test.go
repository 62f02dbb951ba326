package engine

import (
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a connection over an exact device begins with in these tests.
const exactCount, exactSize = 16, 2 << 10

// exactConns returns two ends over a device that posts only the buffers that it is told to post.
func exactConns(t *testing.T) (conns [2]*Conn, pairs [2]*memPair) {
	t.Helper()
	pairs = [2]*memPair{newMemPair(t, exactCount), newMemPair(t, exactCount)}
	pairs[0].peer, pairs[1].peer = pairs[1], pairs[0]
	for i, qp := range pairs {
		hello := OurHello(0)
		hello.Bufs, hello.LocalRcvSz = exactCount, exactSize
		qp.exact = true
		qp.ProvideReceive(exactCount, exactSize)
		c, err := New(memSocket{}, qp, Setup{
			Device: "mem", Dialled: i == 0, Decided: true, Tuning: Tuning{Threshold: -1}, Local: hello, Peer: hello,
		})
		require.NoError(t, err)
		conns[i] = engineOf(t, c)
		t.Cleanup(func() { c.Close() })
	}
	return conns, pairs
}

// awaitStall waits until a Write has waited for credit.
func awaitStall(t *testing.T, c *Conn) {
	t.Helper()
	before := c.Stats().CreditStalls
	assert.Eventually(t, func() bool { return c.Stats().CreditStalls > before }, soon, time.Millisecond)
}

// TestExactDevice: an exact device always has a buffer for what the peer has credit for, while buffers
// become more, larger and small again, and Writes of all lengths go both ways.
func TestExactDevice(t *testing.T) {
	conns, pairs := exactConns(t)
	grown, total := false, 6<<20
	if testing.Short() {
		total = 3 << 20
	}
	for round := range 2 {
		var moving sync.WaitGroup
		for i := range conns {
			moving.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(round), uint64(i)))
				for sent := 0; sent < total; {
					n := 1 + rng.IntN(1<<(4+rng.IntN(14)))
					_, err := conns[i].Write(make([]byte, n))
					if !assert.NoError(t, err) {
						return
					}
					sent += n
				}
				_, err := conns[i].Write([]byte{1})
				assert.NoError(t, err)
			})
			moving.Go(func() {
				if round == 0 { // the peer uses up what it was promised, and is promised more
					awaitStall(t, conns[1-i])
				}
				buf := make([]byte, 40<<10)
				for n, err := 0, error(nil); n == 0 || buf[n-1] != 1; {
					n, err = conns[i].Read(buf)
					if !assert.NoError(t, err) {
						return
					}
				}
			})
		}
		moving.Wait()
		for _, c := range conns {
			grown = grown || c.Stats().BufferSize > exactSize
		}
		require.Eventually(t, func() bool {
			passIdleTicks(conns[:]...)
			return conns[0].Stats().BufferSize == exactSize && conns[1].Stats().BufferSize == exactSize
		}, soon, 10*time.Millisecond, "the buffers shrink")
	}
	assert.True(t, grown, "the buffers grow")
	for _, qp := range pairs {
		qp.mu.Lock()
		assert.GreaterOrEqual(t, qp.mostPosted, exactBuffers, "buffers that were posted at most")
		assert.LessOrEqual(t, len(qp.posted)+qp.lent, exactBuffers, "buffers that are posted at the end")
		qp.mu.Unlock()
	}
}

// TestExactDeviceKeepsPromises: buffers that become larger become fewer, but not before the peer has
// used the credit that it had for the smaller ones. Messages without payload are not such a use.
func TestExactDeviceKeepsPromises(t *testing.T) {
	conns, _ := exactConns(t)
	from, to := conns[0], conns[1]
	write := func(c *Conn, n int) func() {
		var writing sync.WaitGroup
		writing.Go(func() {
			_, err := c.Write(make([]byte, n))
			assert.NoError(t, err)
		})
		return writing.Wait
	}
	read := func(c *Conn, n int) {
		_, err := io.CopyN(io.Discard, struct{ io.Reader }{c}, int64(n))
		require.NoError(t, err)
	}
	const first = 128 << 10
	wait := write(from, first)
	require.Eventually(t, func() bool { return to.Stats().Unread > 12*(exactSize-64) }, soon, time.Millisecond)
	read(to, first)
	wait()
	require.Equal(t, exactBuffers, to.Stats().Buffers)
	const little = 10 << 10 // a Write that asks for larger buffers, and uses few of the present ones
	for moved := 0; to.Stats().BufferSize == exactSize; moved += little {
		require.Less(t, moved, 4<<20)
		wait := write(from, little)
		read(to, little)
		wait()
	}
	const back = 4 << 20 // the credit for it comes in messages without payload
	wait = write(to, back)
	read(from, back)
	wait()
	const burst = 3 << 20
	wait = write(from, burst)
	require.Eventually(t, func() bool { return to.Stats().Unread > 600<<10 }, soon, time.Millisecond)
	read(to, burst)
	wait()
}

// TestExactDeviceUnread: a program can write as much as over TCP although its peer does not read.
func TestExactDeviceUnread(t *testing.T) {
	conns, pairs := exactConns(t)
	const size = 200 << 10
	_, err := conns[0].Write(make([]byte, size))
	require.NoError(t, err)
	more := make(chan error, 1)
	go func() {
		_, err := conns[0].Write(make([]byte, 2*exactUnread))
		more <- err
	}()
	awaitStill(t, conns[:1], conns[1:])
	require.NoError(t, conns[0].SetWriteDeadline(time.Now()))
	require.ErrorIs(t, <-more, os.ErrDeadlineExceeded, "but no more than that")
	_, err = io.CopyN(io.Discard, struct{ io.Reader }{conns[1]}, size)
	require.NoError(t, err)
	pairs[1].mu.Lock()
	defer pairs[1].mu.Unlock()
	assert.LessOrEqual(t, pairs[1].mostPosted, 2*exactUnread/exactSize)
}
