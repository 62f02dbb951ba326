package harness

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latency is the distribution of the times of single operations, in microseconds.
// A quantile is zero if there were too few operations for it.
type Latency struct {
	P50, P99, P999 float64
}

// times collects the times of operations, in one histogram per goroutine.
type times struct{ shards []*hdrhistogram.Histogram }

// maxTime is the largest recorded time, in nanoseconds. Longer ones count as this.
const maxTime = int64(10 * time.Second)

// shard returns a timer for the i-th goroutine. It must not be called
// concurrently.
func (t *times) shard(i int) *timer {
	for len(t.shards) <= i {
		t.shards = append(t.shards, hdrhistogram.New(1, maxTime, 3))
	}
	return &timer{histogram: t.shards[i]}
}

func (t *times) reset() {
	for _, h := range t.shards {
		h.Reset()
	}
}

// The least numbers of operations for which these quantiles are reported.
const (
	minP99  = 50
	minP999 = 500
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
		least    int64 // required operations
		value    *float64
	}{
		{50, 1, &l.P50},
		{99, minP99, &l.P99},
		{99.9, minP999, &l.P999},
	} {
		if all.TotalCount() >= q.least {
			*q.value = float64(all.ValueAtQuantile(q.quantile)) / 1e3
		}
	}
	return l
}

// A timer times consecutive operations of one goroutine.
type timer struct {
	histogram *hdrhistogram.Histogram
	began     time.Duration
}

// epoch makes it possible to read only the monotonic clock, at half the cost of
// time.Now.
var epoch = time.Now()

// start marks the beginning of an operation.
func (t *timer) start() { t.began = time.Since(epoch) }

// lap marks the end of an operation and the beginning of the next, with one reading
// of the clock.
func (t *timer) lap() {
	now := time.Since(epoch)
	t.histogram.RecordValue(min(int64(now-t.began), maxTime))
	t.began = now
}
