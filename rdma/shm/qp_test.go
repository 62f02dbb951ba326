//go:build linux

package shm

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/rdmatest"
)

// What the suite's optional checks need. They are skipped where it is missing.
var (
	_ rdma.Shrinker     = (*QueuePair)(nil)
	_ rdma.Finisher     = (*QueuePair)(nil)
	_ rdma.Appender     = (*QueuePair)(nil)
	_ rdma.Narrow       = (*QueuePair)(nil)
	_ rdma.ReadReporter = (*QueuePair)(nil)
	_ rdma.BusyPoller   = (*QueuePair)(nil)
	_ rdma.RoomPoller   = (*QueuePair)(nil)
)

// socketPair returns two connected Unix sockets.
func socketPair(t testing.TB) (a, b *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	return os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket")
}

// pairOf makes two ends that share an area.
func pairOf(t testing.TB, cfg Config) (a, b *QueuePair) {
	t.Helper()
	near, f, err := newArea()
	require.NoError(t, err)
	defer unix.Close(f)
	far, err := openArea(f, nil)
	require.NoError(t, err)
	x, y := socketPair(t)
	near.ctl.ways[0].bytes.Store(enoughBuffer / byteCost)
	near.ctl.ways[1].bytes.Store(enoughBuffer / byteCost)
	a, err = newQueuePair(x, near, 0, os.Getpid(), cfg)
	require.NoError(t, err)
	b, err = newQueuePair(y, far, 1, os.Getpid(), cfg)
	require.NoError(t, err)
	return a, b
}

var testConfig = Config{IRD: 16, ORD: 16}

func TestConformance(t *testing.T) {
	rdmatest.Run(t, func(t *testing.T) (a, b rdma.QueuePair) { return pairOf(t, testConfig) })
}

func TestAllocsConformance(t *testing.T) {
	rdmatest.RunAllocs(t, func(t *testing.T) (a, b rdma.QueuePair) { return pairOf(t, testConfig) })
}

func BenchmarkQueuePair(b *testing.B) {
	rdmatest.Benchmark(b, func(b *testing.B) (x, y rdma.QueuePair) { return pairOf(b, testConfig) })
}

// TestApart runs the suite with the two ends in two processes, each of which reads the other's memory.
func TestApart(t *testing.T) {
	cfg := rdma.ChannelConfig{IRD: 16, Buffers: 64, BufSize: maxMessage, Timeout: time.Minute}
	a, b := rdmatest.OfferHalves(device{}, cfg)
	rdmatest.RunApart(t, a, b)
}

// TestNoSlotIsFree has all slots be in use when a Read looks for one. The oldest Read may end
// before the new one is counted.
func TestNoSlotIsFree(t *testing.T) {
	var r requests
	for range maxReads {
		require.NotNil(t, r.addReadLocked(rdma.ReadWR{}, maxReads))
	}
	require.Nil(t, r.addReadLocked(rdma.ReadWR{}, maxReads))
	r.reads.Pop() // after the look at the slots
	require.Nil(t, r.addReadLocked(rdma.ReadWR{}, maxReads), "it gets a slot that does not exist")
}
