//go:build linux

package shm

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/rdmatest"
)

// neighbours makes two ends that know that they are in one process.
func neighbours(t testing.TB, cfg Config) (a, b *QueuePair) {
	t.Helper()
	a, b = pairOf(t, cfg)
	a.bell.pair(os.Getpid())
	b.bell.pair(os.Getpid())
	require.Same(t, &b.bell, a.bell.peer.Load())
	require.Same(t, &a.bell, b.bell.peer.Load())
	return a, b
}

// inTwoProcesses makes the ends forget that they are in one process, for tests in which one dies.
func inTwoProcesses(a, b *QueuePair) {
	a.bell.peer.Store(nil)
	b.bell.peer.Store(nil)
}

func TestConformanceInOneProcess(t *testing.T) {
	rdmatest.Run(t, func(t *testing.T) (a, b rdma.QueuePair) { return neighbours(t, testConfig) })
}

func TestNoRingIsLostInOneProcess(t *testing.T) {
	a, b := neighbours(t, testConfig)
	noRingIsLost(t, a, b)
	assert.Empty(t, unpaired.bells)
}

// TestNeighboursFindEachOther: the ends of a channel that a process opens to itself wake each other
// without the socket, on each use of it.
func TestNeighboursFindEachOther(t *testing.T) {
	emptied(t)
	p := newPlace(t)
	a, b := opened(t, p, "here")
	for range 3 {
		assert.Same(t, &b.bell, a.bell.peer.Load())
		assert.Same(t, &a.bell, b.bell.peer.Load())
		assert.Empty(t, unpaired.bells)
		waits(t, b, func() { says(t, a, b, "hello") })
		closed(t, a, b)
		a, b = resumed(t, p, "here")
	}
	closed(t, a, b)
}

// waits runs f while b has been parked by another Wait, which it ends.
func waits(t *testing.T, b *QueuePair, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var wcs [1]rdma.Completion
		b.Wait(wcs[:])
	}()
	require.Eventually(t, func() bool { return b.theirs().idle.Load() != 0 }, time.Minute, time.Millisecond)
	b.Wake()
	<-done
	f()
}

// TestParkedBeforeTheyMet: an end that parked at the socket before the other end was known is woken
// over the socket.
func TestParkedBeforeTheyMet(t *testing.T) {
	a, b := pairOf(t, testConfig)
	defer a.Abort()
	defer b.Abort()
	a.ProvideReceive(16, 4096)
	a.rx.spin.SetBusyPoll(spin.Off)
	ended := make(chan error, 1)
	go func() {
		var wcs [1]rdma.Completion
		n, err := a.Wait(wcs[:])
		if n == 1 {
			wcs[0].Buffer.Release()
		}
		ended <- err
	}()
	require.Eventually(t, func() bool { return a.theirs().idle.Load() != 0 }, time.Minute, time.Millisecond)
	a.bell.pair(os.Getpid())
	b.bell.pair(os.Getpid())
	_, err := b.PostSend([]rdma.SendWR{{Header: []byte("message")}})
	require.NoError(t, err)
	select {
	case err := <-ended:
		assert.NoError(t, err)
	case <-time.After(time.Minute):
		require.Fail(t, "it was not woken")
	}
}

// TestNeighbourThatNeverCame is not looked for any more when the other end has closed.
func TestNeighbourThatNeverCame(t *testing.T) {
	a, b := pairOf(t, testConfig)
	a.bell.pair(os.Getpid() + 1)
	assert.Empty(t, unpaired.bells, "the peer is another process")
	a.bell.pair(os.Getpid())
	assert.Len(t, unpaired.bells, 1)
	a.Abort()
	assert.Empty(t, unpaired.bells)
	b.Abort()
}
