package rdmatest

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

var lendChecks = []check{
	{"Count", checkCount},
	{"Intact", checkIntact},
	{"OutOfOrder", checkOutOfOrder},
	{"AfterClose", checkLentAfterClose},
	{"AfterFailure", checkLentAfterFailure},
	{"Resize", checkResize},
	{"ResizeInTraffic", checkResizeInTraffic},
	{"CountsLent", checkCountsLent},
	{"PostsReleased", checkPostsReleased},
}

// As many messages arrive as there are buffers if none is released, and one more for each that is.
func checkCount(t *testing.T, pair Pair) {
	for _, count := range []int{1, 3, window} {
		a, b := connect(t, pair)
		b.collect()
		resize(b, count, b.size)
		var held []rdma.Buffer
		for i := range count {
			a.send(contents(uint64(i), 100))
		}
		for i := range count {
			held = append(held, b.hold(contents(uint64(i), 100)).Buffer)
		}
		for i, h := range held {
			h.Release()
			a.send(contents(uint64(count+i), 100))
			held[i] = b.hold(contents(uint64(count+i), 100)).Buffer
		}
	}
}

// resize calls ProvideReceive, from which an elastic device returns 0.
func resize(e *end, count, size int) (old int) {
	e.t.Helper()
	old = e.ProvideReceive(count, size)
	if e.Limits().Elastic && old != 0 {
		e.t.Fatalf("%s: ProvideReceive(%d, %d) = %d, want 0 from an elastic device", e.name, count, size, old)
	}
	return old
}

// A lent message does not change, however much arrives after it.
func checkIntact(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	f := newFlow(a, b, newSeed(t), repeat(4000), (16<<20)/lighter, b.size, window)
	var held, copies [][]byte
	f.dispose = func(lent rdma.Buffer) {
		if len(held) < window/4 {
			held = append(held, lent.Bytes)
			copies = append(copies, bytes.Clone(lent.Bytes))
			return
		}
		f.release(lent)
	}
	pumpFlow(f)
	together(t, f.send, f.wait)
	b.stop()
	checkSame(t, held, copies)
}

func checkSame(t *testing.T, held, copies [][]byte) {
	t.Helper()
	for i := range held {
		if !bytes.Equal(held[i], copies[i]) {
			t.Errorf("lent message %d now reads %s, was %s", i, brief(held[i]), brief(copies[i]))
		}
	}
}

// Buffers may be released in any order and by any goroutine.
func checkOutOfOrder(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	f := newFlow(a, b, newSeed(t), repeat(4000), (8<<20)/lighter, b.size, window)
	lent := make(chan rdma.Buffer, window)
	f.dispose = func(b rdma.Buffer) { lent <- b }
	pumpFlow(f)

	var releasing sync.WaitGroup
	for range 4 {
		releasing.Go(func() {
			var mine []rdma.Buffer
			for open := true; open; {
				var next rdma.Buffer
				if next, open = <-lent; open {
					mine = append(mine, next)
				}
				if len(mine) < window/8 && open {
					continue
				}
				rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
				for _, b := range mine {
					f.release(b)
				}
				mine = mine[:0]
			}
		})
	}
	together(t, f.send, f.wait)
	b.stop()
	close(lent)
	releasing.Wait()
}

// A loan outlives its queue pair.
func checkLentAfterClose(t *testing.T, pair Pair) {
	for _, how := range endings {
		a, b := connect(t, pair)
		held, copies := lendAll(a, b)
		_ = how.end(b)
		checkLoans(t, held, copies)
	}
}

// The same if a violation by the peer ends it.
func checkLentAfterFailure(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	held, copies := lendAll(a, b)
	a.collect()
	a.send(contents(1, 100))
	expectViolation(b, a)
	checkLoans(t, held, copies)
}

// lendAll lets every buffer of b be lent.
func lendAll(a, b *end) (held []rdma.Buffer, copies [][]byte) {
	b.collect()
	for i := range uint64(window) {
		a.send(contents(i, 5000))
		held = append(held, b.hold(contents(i, 5000)).Buffer)
		copies = append(copies, bytes.Clone(contents(i, 5000)))
	}
	return held, copies
}

func checkLoans(t *testing.T, held []rdma.Buffer, copies [][]byte) {
	t.Helper()
	var now [][]byte
	for _, h := range held {
		now = append(now, h.Bytes)
	}
	checkSame(t, now, copies)
	for _, h := range held {
		h.Release()
	}
}

// ProvideReceive makes buffers larger and smaller between two messages. Those that it reports as
// being of the old size are filled first.
func checkResize(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	b.collect()
	now, number := b.size, uint64(0)
	exchange := func(size int) {
		t.Helper()
		number++
		a.send(contents(number, size))
		b.expect(contents(number, size))
	}
	for _, size := range []int{4096, 100, b.size, 37, b.size / 2, b.size} {
		for range resize(b, window, size) {
			exchange(min(now, size))
		}
		now = size
		for range 2 * window {
			exchange(size)
		}
	}
}

// Sizes may change at any time, as far as the traffic allows.
func checkResizeInTraffic(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	const smallest = 3000
	resize(b, 2*window, smallest)
	f := newFlow(a, b, newSeed(t), repeat(4000), 1<<30, smallest, window)
	pumpFlow(f)
	resizing := func() error {
		for i := 0; ; i++ {
			select {
			case <-f.received:
				return nil
			case <-b.done:
				return nil // and f.wait says why
			default:
				b.ProvideReceive(window+i%window, smallest+i%1000)
			}
		}
	}
	together(t, f.send, f.wait, resizing)
}

// The count includes lent buffers, and may fall below their number.
func checkCountsLent(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	if !b.Limits().Elastic {
		t.Skip("missing: Limits.Elastic, without which a device cannot take back what it has posted")
	}
	held, _ := lendAll(a, b)
	resize(b, 2, b.size)
	for _, h := range held[1:] {
		h.Release() // one is still lent, so the last of these posts one again
	}
	a.send(contents(1, 100))
	last := b.hold(contents(1, 100)).Buffer
	a.collect()
	a.send(contents(2, 100))
	expectViolation(b, a)
	last.Release()
	held[0].Release()
}

// Release posts one buffer: after any number of Releases there are as many as before.
func checkPostsReleased(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	a.collect()
	b.collect()
	for k := range uint64(2 * window) {
		a.send(contents(k, 100))
		b.expect(contents(k, 100))
	}
	overrun(a)
	expectOverrun(b, a)
}
