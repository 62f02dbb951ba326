package harness

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latency is how long single operations took, in microseconds. A quantile that
// too few operations stand behind is zero.
type Latency struct {
	P50, P99, P999 float64
}

// times collects how long operations take, in a histogram for each goroutine
// that does some.
type times struct{ shards []*hdrhistogram.Histogram }

// longest is what counts as such an operation's time at most, in nanoseconds.
const longest = int64(10 * time.Second)

// shard returns the i-th goroutine's histogram. Called before those goroutines
// begin.
func (t *times) shard(i int) *timer {
	for len(t.shards) <= i {
		t.shards = append(t.shards, hdrhistogram.New(1, longest, 3))
	}
	return &timer{histogram: t.shards[i]}
}

func (t *times) reset() {
	for _, h := range t.shards {
		h.Reset()
	}
}

// Fewer operations than these have no such quantile.
const (
	leastP99  = 50
	leastP999 = 500
)

func (t *times) latency() (l Latency) {
	if len(t.shards) == 0 {
		return l
	}
	all := t.shards[0]
	for _, h := range t.shards[1:] {
		all.Merge(h)
	}
	for _, q := range []struct {
		quantile float64
		least    int64 // operations that it takes
		value    *float64
	}{
		{50, 1, &l.P50},
		{99, leastP99, &l.P99},
		{99.9, leastP999, &l.P999},
	} {
		if all.TotalCount() >= q.least {
			*q.value = float64(all.ValueAtQuantile(q.quantile)) / 1e3
		}
	}
	return l
}

// A timer times operations that follow each other in one goroutine.
type timer struct {
	histogram *hdrhistogram.Histogram
	began     time.Duration
}

// epoch lets a reading of the clock be of the monotonic one alone, which costs
// half.
var epoch = time.Now()

// start says that an operation begins now.
func (t *timer) start() { t.began = time.Since(epoch) }

// lap says that an operation has ended and the next one begins: the clock is
// read once for each.
func (t *timer) lap() {
	now := time.Since(epoch)
	t.histogram.RecordValue(min(int64(now-t.began), longest))
	t.began = now
}
