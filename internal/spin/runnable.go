//go:build linux

package spin

import (
	"runtime/metrics"
	"sync"
)

// runnable reports whether goroutines of this process wait for a P; true before Go 1.26, which does
// not say. It takes 0.1 µs. A yield wakes a thread even if no goroutine waits, and that thread looks
// for work for some 10 µs of processor time. Tests replace it.
var runnable = func() bool {
	c := &runnableCount
	if !c.mu.TryLock() {
		return true
	}
	defer c.mu.Unlock()
	metrics.Read(c.sample[:])
	v := c.sample[0].Value
	return v.Kind() != metrics.KindUint64 || v.Uint64() > 0
}

var runnableCount = struct {
	mu     sync.Mutex // a goroutine that does not get it yields
	sample [1]metrics.Sample
}{sample: [1]metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}}}
