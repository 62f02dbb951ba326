package rdmatest

import (
	"slices"
	"testing"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

var promptChecks = []check{
	{"NeverBlocks", checkNeverBlocks},
	{"Invalidate", checkInvalidateIsPrompt},
}

const (
	// instant is longer than a call that never blocks takes on a slow machine, and shorter than a
	// call that waits for something.
	instant = 500 * time.Microsecond
	// oneLook is longer than Poll takes. Over a stream that can only be read with a deadline, it
	// waits for one, which the runtime may delay by a millisecond.
	oneLook = 5 * time.Millisecond
	// oneSegment is longer than the device takes to move one segment.
	oneSegment = 100 * time.Millisecond
)

// stopwatch holds how long the calls of each name took.
type stopwatch map[string][]time.Duration

func (s stopwatch) time(name string, call func()) {
	begin := time.Now()
	call()
	s[name] = append(s[name], time.Since(begin))
}

// expectInstant checks that the fastest quarter of the calls of each name did not wait. A busy machine
// delays some of the calls, but not that many.
func (s stopwatch) expectInstant(t *testing.T) {
	t.Helper()
	for name, took := range s {
		slices.Sort(took)
		if quarter := took[len(took)/4]; quarter > instant {
			t.Errorf("%s blocks: three of four calls took %v or longer", name, quarter)
		}
	}
}

// expectBest checks that the fastest of some calls took at most most.
func expectBest(t *testing.T, name string, took []time.Duration, most time.Duration) {
	t.Helper()
	if best := slices.Min(took); best > most {
		t.Errorf("%s: the fastest of %d calls took %v, want %v at most", name, len(took), best, most)
	}
}

// The calls that never block do not wait for anything, even briefly.
func checkNeverBlocks(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	b.collect()
	region := b.expose(100, rdma.RemoteRead|rdma.RemoteWrite)
	s, polls := stopwatch{}, stopwatch{}
	var wcs [4]rdma.Completion
	for k := range uint64(40) {
		wrs := []rdma.SendWR{message(contents(k, 100), 16)}
		var n int
		var err error
		s.time("PostSend", func() { n, err = a.PostSend(wrs) })
		if n != 1 || err != nil {
			t.Fatalf("PostSend = %d, %v", n, err)
		}
		s.time("Flush", a.Flush)
		b.expect(contents(k, 100))

		s.time("PostRead", func() { err = read(a, make([]byte, 100), region.STag, region.VA) })
		must(t, err)
		a.carry()
		waitOne(t, a, wcs[:])
		s.time("PostWrite", func() { err = write(a, contents(k, 100), region.STag, region.VA) })
		must(t, err)
		a.carry()
		waitOne(t, a, wcs[:])

		polls.time("Poll", func() { n, err = a.Poll(wcs[:]) })
		if n != 0 || err != nil {
			t.Fatalf("Poll = %d, %v with nothing outstanding", n, err)
		}
		if shrinker, ok := a.QueuePair.(rdma.Shrinker); ok {
			s.time("Shrink", shrinker.Shrink)
		}
	}
	s.expectInstant(t)
	expectBest(t, "Poll", polls["Poll"], oneLook)
}

// Invalidate does not wait if nothing is being moved.
func checkInvalidateIsPrompt(t *testing.T, pair Pair) {
	a, b := connect(t, pair)
	a.collect()
	b.collect()
	s := stopwatch{}
	for range 3 {
		target := b.expose(100_000, rdma.RemoteWrite)
		x := transfers{e: a}
		must(t, x.write(contents(0, 100_000), target.STag, target.VA, nil))
		must(t, x.finish())
		a.send([]byte("written"))
		b.expect([]byte("written"))
		s.time("Invalidate", func() { b.Invalidate(target.STag) })
	}
	expectBest(t, "Invalidate", s["Invalidate"], oneSegment)
}
