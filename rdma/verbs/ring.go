//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"sync"
	"sync/atomic"
)

// ring is registered memory from which the device takes messages and pieces of RDMA Writes. It
// starts small, becomes larger when it is full, and small again when the connection is idle. Positions
// count all bytes ever, whatever the size. All but size, tail and retired is guarded by sender.mu.
type ring struct {
	mem  []byte
	mr   *C.struct_v_mr
	head uint64
	base uint64 // head when mem replaced its predecessor
	full bool   // a message did not fit, or was cut

	size    atomic.Int64  // of mem
	tail    atomic.Uint64 // what is older is free
	cut     atomic.Bool   // Width has cut a message
	retired retiredRings
}

const (
	leastRing = 16 << 10
	mostRing  = 512 << 10
	ringSteps = 4 // a ring that is full becomes this many times as large
)

// used returns how many bytes the device may still take.
func (r *ring) used(head uint64) int { return int(head - max(r.tail.Load(), r.base)) }

// fits reports whether size bytes fit now.
func (r *ring) fits(size int) bool {
	return r.used(r.head+uint64(r.skip(size)+rounded(size))) <= len(r.mem)
}

// skip returns how many bytes to skip at the end of mem, if size bytes do not fit there.
func (r *ring) skip(size int) int {
	if at := int(r.head % uint64(len(r.mem))); at+rounded(size) > len(r.mem) {
		return len(r.mem) - at
	}
	return 0
}

// take returns where in mem the next size bytes belong, which must fit, and how many bytes that uses.
func (r *ring) take(size int) (at, taken int) {
	skip := r.skip(size)
	at = int((r.head + uint64(skip)) % uint64(len(r.mem)))
	taken = skip + rounded(size)
	r.head += uint64(taken)
	return at, taken
}

// replace makes a ring of another size. What the device still takes from the present one stays until
// the work before number posted has completed.
func (r *ring) replace(pd *C.struct_v_pd, size int, c claim, posted uint64) error {
	mem, err := buffers.get(size, c)
	if err != nil {
		return err
	}
	mr, err := registerMemory(pd, mem, 0)
	if err != nil {
		buffers.put(mem)
		return err
	}
	if r.mem != nil {
		r.retired.add(retiredRing{r.mem, r.mr, posted})
	}
	r.mem, r.mr, r.base = mem, mr, r.head
	r.size.Store(int64(len(mem)))
	return nil
}

// grow makes the ring larger, at least so that a message of size bytes fits. It returns false if it may
// not be larger.
func (r *ring) grow(pd *C.struct_v_pd, size int, posted uint64) bool {
	want, c := len(r.mem)*ringSteps, growing
	if want > mostRing {
		want = mostRing
	}
	if rounded(size) > len(r.mem) { // otherwise it would never be sent
		want, c = max(want, 2*rounded(size)), needed
	}
	return want > len(r.mem) && r.replace(pd, want, c, posted) == nil
}

// close gives everything back. The device must have ended the queue pair.
func (r *ring) close() {
	r.retired.free(^uint64(0))
	if r.mem != nil {
		_ = deregister(r.mr) // the peer has no access to it
		buffers.put(r.mem)
	}
	r.mem, r.mr = nil, nil
	r.size.Store(0)
}

// retiredRings are former rings from which the device may still take something.
type retiredRings struct {
	n    atomic.Int32
	mu   sync.Mutex
	list []retiredRing
}

type retiredRing struct {
	mem   []byte
	mr    *C.struct_v_mr
	until uint64 // the number of the first work request that does not use it
}

func (r *retiredRings) add(old retiredRing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, old)
	r.n.Store(int32(len(r.list)))
}

// free gives back the rings that no work uses, if work before number tail has completed.
func (r *retiredRings) free(tail uint64) {
	if r.n.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.list[:0]
	for _, old := range r.list {
		if tail < old.until {
			kept = append(kept, old)
			continue
		}
		_ = deregister(old.mr)
		buffers.put(old.mem)
	}
	clear(r.list[len(kept):])
	r.list = kept
	r.n.Store(int32(len(kept)))
}
