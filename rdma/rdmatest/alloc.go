package rdmatest

import (
	"fmt"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

// RunAllocs checks that a message causes no allocation, from PostSend to Release. The race detector
// allocates, so the test is skipped in its builds.
func RunAllocs(t *testing.T, pair Pair) {
	if raceEnabled {
		t.Skip("missing: a build without the race detector, which allocates")
	}
	guard(t)
	for _, size := range []int{16, 64, 4096, 32 << 10} {
		a, b := connect(t, pair)
		wrs := []rdma.SendWR{message(contents(0, size), 16)}
		var wcs [4]rdma.Completion
		expectNoAllocations(t, fmt.Sprintf("%d bytes", size), func() {
			if n, err := a.PostSend(wrs); n != 1 || err != nil {
				t.Fatalf("PostSend = %d, %v", n, err)
			}
			a.carry()
			waitOne(t, b, wcs[:]).Buffer.Release()
		})
	}
}

func waitOne(t *testing.T, e *end, wcs []rdma.Completion) rdma.Completion {
	n, err := e.Wait(wcs)
	if n != 1 || err != nil {
		t.Fatalf("Wait = %d, %v, want 1 completion", n, err)
	}
	return wcs[0]
}

func expectNoAllocations(t *testing.T, what string, f func()) {
	t.Helper()
	for range 200 {
		f() // buffers and queues grow to the size that they need
	}
	if n := testing.AllocsPerRun(500, f); n != 0 {
		t.Errorf("%s: %v allocations", what, n)
	}
}
