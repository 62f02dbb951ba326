//go:build linux

package shm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
)

// TestParkLooks: park does not sleep if a record is there.
func TestParkLooks(t *testing.T) {
	a, b := pairOf(t, testConfig)
	defer a.Close()
	defer b.Close()
	b.ProvideReceive(4, 4096)
	message := []rdma.SendWR{{Header: []byte("message")}}
	post := func() {
		n, err := a.PostSend(message)
		assert.NoError(t, err)
		assert.Equal(t, 1, n)
	}
	take := func() {
		var wcs [4]rdma.Completion
		n, err := b.Poll(wcs[:])
		require.NoError(t, err)
		require.Equal(t, 1, n)
		wcs[0].Buffer.Release()
	}
	post()
	assert.False(t, b.bell.park(&b.bell.in), "it is there")
	take()
}

// TestNoRingIsLost: both ends park before each message, and the messages arrive at every moment of
// that.
func TestNoRingIsLost(t *testing.T) {
	a, b := pairOf(t, testConfig)
	noRingIsLost(t, a, b)
}

func noRingIsLost(t *testing.T, a, b *QueuePair) {
	t.Helper()
	times := 50_000
	if testing.Short() {
		times = 2000
	}
	a.rx.spin.SetBusyPoll(spin.Off)
	b.rx.spin.SetBusyPoll(spin.Off)
	talk(t, a, b, times)
}

// talk moves so many messages in each direction in turns, and closes the two ends.
func talk(t *testing.T, a, b *QueuePair, times int) {
	t.Helper()
	var talking sync.WaitGroup
	var moved atomic.Int64
	for i, q := range []*QueuePair{a, b} {
		q.ProvideReceive(64, 4096)
		talking.Go(func() {
			var wcs [4]rdma.Completion
			message := []rdma.SendWR{{Header: []byte("message")}}
			for round := range times {
				if round > 0 || i == 1 {
					n := 0
					for n == 0 {
						var err error
						if n, err = q.Wait(wcs[:1]); err != nil {
							return
						}
					}
					wcs[0].Buffer.Release()
				}
				for range rand.IntN(200) {
					spin.Pause(1)
				}
				if round%16 == 0 {
					runtime.Gosched()
				}
				if n, err := q.PostSend(message); n != 1 || err != nil {
					return
				}
				moved.Add(1)
			}
		})
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		talking.Wait()
	}()
	for last := int64(-1); ; {
		select {
		case <-stopped:
			assert.EqualValues(t, 2*times, moved.Load())
			assert.NoError(t, a.Close())
			assert.NoError(t, b.Close())
			return
		case <-time.After(time.Minute):
		}
		now := moved.Load()
		if now == last {
			a.Abort()
			b.Abort()
			<-stopped
			assert.Fail(t, "both ends sleep", "after %d messages", now)
			return
		}
		last = now
	}
}

// TestSmallSendBuffer: no wake-up is lost, however few bytes a socket can hold.
func TestSmallSendBuffer(t *testing.T) {
	for _, size := range []int{4608, 16384, 32768, enoughBuffer} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			a, b := pairOf(t, testConfig)
			defer a.Abort()
			defer b.Abort()
			for i, q := range []*QueuePair{a, b} {
				require.NoError(t, setSendBuffer(q.bell.conn, size/2))
				got, err := tellRoom(q.bell.conn, &q.area.ctl.ways[i])
				require.NoError(t, err)
				assert.Equal(t, size, got)
			}
			for _, q := range []*QueuePair{a, b} {
				require.NoError(t, q.bell.init(q, q.bell.conn)) // as the socket is now
				q.ProvideReceive(16, 4096)
			}
			parked := make(chan struct{})
			done := make(chan error, 1)
			const messages = 200
			go func() {
				var wcs [4]rdma.Completion
				for range messages {
					n, err := 0, error(nil)
					parked <- struct{}{}
					for n == 0 && err == nil {
						n, err = b.Wait(wcs[:])
					}
					if err != nil {
						done <- err
						return
					}
					for _, wc := range wcs[:n] {
						wc.Buffer.Release()
					}
				}
				done <- nil
			}()
			for i := range messages {
				<-parked
				for b.theirs().idle.Load() == 0 { // until it sleeps
					runtime.Gosched()
				}
				n, err := a.PostSend([]rdma.SendWR{{Header: []byte("message")}})
				require.NoError(t, err)
				require.Equal(t, 1, n)
				require.Eventually(t, func() bool { return a.mine().head.Load() == a.tx.ring.pos }, time.Minute, 50*time.Microsecond,
					"message %d wakes nobody", i)
			}
			assert.NoError(t, <-done)
		})
	}
}

// TestDoorbellHasRoom: a channel's sockets can hold as many bytes as its ends leave unread, whatever the
// host's default is.
func TestDoorbellHasRoom(t *testing.T) {
	x, y := socketPair(t)
	defer x.Close()
	defer y.Close()
	a, f, err := newArea()
	require.NoError(t, err)
	defer unix.Close(f)
	defer a.unmap()
	require.NoError(t, setSendBuffer(x, 2304))
	require.NoError(t, openDoorbell(int(x.Fd()), a, 0))
	assert.GreaterOrEqual(t, a.ctl.ways[0].bytes.Load(), uint32(drainEvery*bytesForRing))
}

// setSendBuffer makes the kernel give a socket twice this many bytes.
func setSendBuffer(conn *os.File, bytes int) (err error) {
	rc, e := conn.SyscallConn()
	if e == nil {
		e = rc.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, bytes) })
	}
	return errors.Join(e, err)
}

// tellRoom tells the peer how many bytes of the doorbell the socket can hold. It returns the size of the
// socket's buffer.
func tellRoom(conn *os.File, d *direction) (size int, err error) {
	rc, e := conn.SyscallConn()
	if e == nil {
		e = rc.Control(func(fd uintptr) { size, err = sendBuffer(int(fd)) })
	}
	d.bytes.Store(uint32(size / byteCost))
	return size, errors.Join(e, err)
}

// TestRingThatFails ends the channel with a reset at both ends, or the peer would sleep for ever. A
// datagram socket whose other end is closed stands for the doorbell's, because it has an error to return.
func TestRingThatFails(t *testing.T) {
	q, r := meetRogue(t)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	defer unix.Close(fds[0])
	require.NoError(t, unix.Close(fds[1]))
	q.bell.sendOrEnd(uintptr(fds[0]))
	p := []unix.PollFd{{Fd: int32(fds[0])}}
	unix.Poll(p, 0)
	assert.NotZero(t, p[0].Revents&unix.POLLHUP, "it is shut down")
	assert.Equal(t, uint32(stateAborted), r.a.ctl.ways[0].state.Load(), "the peer finds a reset")
	require.NoError(t, r.conn.Close())
	assert.ErrorIs(t, ends(t, q), syscall.ECONNRESET, "and so does this end, although the peer had read everything")
}
