//go:build linux

package spin

import (
	"sync/atomic"
	"time"
)

// awake makes one of many waits park that would take steps. A goroutine that has run for 10 ms
// without parking is interrupted: the runtime sends its thread a signal, takes its P if it is in a
// system call, and then looks at the process every 20 µs for a while. With a request each ms that
// costs a sixth of the processor time, and a wait that parks before costs less. With many requests
// it is little for each of them, and a wait that parks would hold up those that follow.
type awake struct {
	last atomic.Int64 // when a wait last parked, on the Clock, as far as overdue has to know

	// Of the wait that has the turn:
	since time.Duration // when a wait last parked or was told to, or overdue began to count again
	waits int           // since then
}

const (
	awakeTime  = 5 * time.Millisecond // for so long waits with steps follow each other without parking,
	awakeWaits = 7                    // but at least this many;
	awakeBusy  = 40                   // and processes with more in that time never park
)

// parked records that a wait has parked. It rarely writes, because all processors read last.
func (a *awake) parked(now time.Duration) {
	if now-time.Duration(a.last.Load()) > awakeTime/8 {
		a.last.Store(int64(now))
	}
}

// overdue reports whether the wait that has the turn should park instead of taking steps.
func (a *awake) overdue(now time.Duration) (overdue bool) {
	if last := time.Duration(a.last.Load()); last > a.since {
		a.since, a.waits = last, 0
	}
	a.waits++
	long := now-a.since > awakeTime
	overdue = long && a.waits > awakeWaits
	if overdue || !long && a.waits > awakeBusy {
		a.since, a.waits = now, 0
	}
	return overdue
}
