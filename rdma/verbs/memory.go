//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"sync"

	"github.com/gosdp/gosdp/rdma"
)

// regions are what the peer may reach. A registration lives exactly as long as
// the exposure: Go gives freed memory back to the kernel without telling, and a
// registration that is kept would reach the pages that were there before.
type regions struct {
	mu     sync.Mutex
	of     map[rdma.STag]region
	closed bool
}

type region struct {
	mr  *C.struct_v_mr
	mem []byte // kept alive
}

// Register exposes b to the peer; see rdma.QueuePair.
func (q *QueuePair) Register(b []byte, access rdma.Access) (rdma.Region, error) {
	flags := C.int(0)
	if access&rdma.RemoteRead != 0 {
		flags |= C.V_ACCESS_REMOTE_READ
	}
	if access&rdma.RemoteWrite != 0 {
		flags |= C.V_ACCESS_REMOTE_WRITE | C.V_ACCESS_LOCAL_WRITE
	}
	q.regions.mu.Lock()
	defer q.regions.mu.Unlock()
	if q.regions.closed {
		return rdma.Region{}, q.failed()
	}
	raceRelease()
	r := region{mem: b}
	if errno := C.v_reg_mr(q.end.pd, addressOf(b), C.size_t(len(b)), flags, &r.mr); errno != 0 {
		return rdma.Region{}, whyRegister(len(b), errno)
	}
	stag := rdma.STag(r.mr.rkey)
	q.regions.of[stag] = r
	return rdma.Region{STag: stag, VA: uint64(addressOf(b))}, nil
}

// Invalidate ends the exposure; see rdma.QueuePair.
func (q *QueuePair) Invalidate(s rdma.STag) {
	q.regions.mu.Lock()
	defer q.regions.mu.Unlock()
	if r, ok := q.regions.of[s]; ok {
		delete(q.regions.of, s)
		C.v_dereg_mr(r.mr)
		raceAcquire()
	}
}

// close ends every exposure. Called with mu held.
func (r *regions) close() {
	r.closed = true
	for s, region := range r.of {
		delete(r.of, s)
		C.v_dereg_mr(region.mr)
	}
}
