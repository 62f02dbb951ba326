package rdmatest

import (
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

var sendChecks = []check{
	{"SmallInOrder", checkSmallInOrder},
	{"LargeInOrder", checkLargeInOrder},
	{"Boundaries", checkBoundaries},
	{"Batches", checkBatches},
	{"Splits", checkSplits},
	{"Nothing", checkSendNothing},
}

// Thousands of small messages in both directions at once arrive in order and complete.
func checkSmallInOrder(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	bothWays(t, a, b, repeat(4000), 1<<30, 2000)
}

// The same with messages as large as the device allows.
func checkLargeInOrder(t *testing.T, pair Pair) {
	a, b := connectSized(t, pair, largest)
	bothWays(t, a, b, 2000, repeat((24<<20)/lighter), a.size)
}

func bothWays(t *testing.T, a, b *end, count, bytes, max int) {
	t.Helper()
	seed := newSeed(t)
	ab := newFlow(a, b, seed, count, bytes, max, window)
	ba := newFlow(b, a, seed+2, count, bytes, max, window)
	pumpFlow(ab)
	pumpFlow(ba)
	together(t, ab.send, ba.send, ab.wait, ba.wait)
}

// Messages of the sizes at which devices change their behaviour.
func checkBoundaries(t *testing.T, pair Pair) {
	a, b := connectSized(t, pair, largest)
	b.collect()
	for i, n := range append(seams, a.size-1, a.size) {
		if n == 0 || n > a.size {
			continue
		}
		a.send(contents(uint64(i), n))
		b.expect(contents(uint64(i), n))
	}
}

// seams are sizes around a page, around the payload of a full FPDU of 64,768 bytes with a tagged and an
// untagged header, and around several of these.
var seams = []int{
	0, 1, 3, 63, 64, 65, 4095, 4096, 4097,
	64768 - 19, 64768 - 18, 64768 - 17, 64768 - 15, 64768 - 14, 64768 - 13,
	64767, 64768, 64769, 65535, 65536, 2*(64768-14) + 1, 1 << 20, most,
}

// PostSend accepts a batch of any size as it would accept its messages one by one.
func checkBatches(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	b.collect()
	for size := 1; size <= window; size++ {
		wrs := make([]rdma.SendWR, size)
		for i := range wrs {
			wrs[i] = message(contents(uint64(size+i), 100+i), 16)
		}
		must(t, a.post(wrs...))
		for i := range size {
			b.expect(contents(uint64(size+i), 100+i))
		}
	}
}

// The peer cannot tell where the header ends.
func checkSplits(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	b.collect()
	for header := 1; header <= 64; header++ {
		for _, size := range []int{header, header + 1, 200, 5000} {
			must(t, a.post(message(contents(uint64(size), size), header)))
			b.expect(contents(uint64(size), size))
		}
	}
}

// An empty batch is no work.
func checkSendNothing(t *testing.T, pair Pair) {
	a, _ := connect(t, pair)
	if n, err := a.PostSend(nil); n != 0 || err != nil {
		t.Errorf("PostSend(nil) = %d, %v", n, err)
	}
}
