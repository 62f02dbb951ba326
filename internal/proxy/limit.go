package proxy

import (
	"runtime"
	"sync"
	"time"
)

const (
	// reserved descriptors are for listeners, files and the runtime.
	reserved = 64
	// perRelay is how many descriptors a connection takes: two sockets, and a pipe of two for
	// each direction between two plain TCP connections. Over shm there are fewer.
	perRelay = 6
)

// DefaultLimit returns how many connections the process can relay at a time with the descriptors
// that it may open, of which spare are for something else; 0: that is not known. Clients beyond the
// limit wait. Without a limit, clients could take all descriptors, and none would be left to dial
// their targets.
func DefaultLimit(spare int) int {
	files := descriptors()
	if files == 0 {
		return 0
	}
	return int(max(1, (int64(min(files, 1<<30))-reserved-int64(spare))/perRelay))
}

// collector limits how often the garbage collector is called for descriptors.
var collector struct {
	mu   sync.Mutex
	last time.Time
}

// collectDescriptors has the garbage collector close descriptors that nothing uses, at most once a
// second. Package net leaves it to the collector to close the pipes of splices that have ended; a
// proxy that stands still for lack of descriptors allocates nothing, so it would not run by itself.
func collectDescriptors() {
	collector.mu.Lock()
	defer collector.mu.Unlock()
	if time.Since(collector.last) >= time.Second {
		runtime.GC()
		collector.last = time.Now()
	}
}
