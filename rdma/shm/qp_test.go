//go:build linux

package shm

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/rdmatest"
)

// socketPair returns two connected Unix sockets.
func socketPair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	return unixConn(t, fds[0]), unixConn(t, fds[1])
}

func unixConn(t testing.TB, fd int) *net.UnixConn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	require.NoError(t, err)
	return c.(*net.UnixConn)
}

// pairOf makes two ends that share an area.
func pairOf(t testing.TB, cfg Config) (a, b *QueuePair) {
	t.Helper()
	near, f, err := newArea()
	require.NoError(t, err)
	defer f.Close()
	far, err := openArea(int(f.Fd()))
	require.NoError(t, err)
	x, y := socketPair(t)
	require.NoError(t, openDoorbell(x, near, 0))
	require.NoError(t, openDoorbell(y, far, 1))
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

func BenchmarkQueuePair(b *testing.B) {
	rdmatest.Benchmark(b, func(b *testing.B) (x, y rdma.QueuePair) { return pairOf(b, testConfig) })
}

// TestApart has the two ends in two processes, each of which reads the other's memory.
func TestApart(t *testing.T) {
	cfg := rdma.StepConfig{IRD: 16, Buffers: 64, BufSize: maxMessage, Timeout: 10 * time.Second}
	a, b := rdmatest.StepHalves(device{}, cfg, netip.Addr{})
	rdmatest.RunApart(t, a, b)
}
