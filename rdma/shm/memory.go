//go:build linux

package shm

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"sync"

	"github.com/gosdp/gosdp/rdma"
)

// region is registered memory. Whoever moves bytes to it holds mu for reading and
// looks at buf again each time; whoever ends it sets buf to nil under mu for
// writing, so that nothing lands afterwards. It stays where it is meanwhile: what
// goes through an interface is not on a stack, and Go's heap does not move.
type region struct {
	access rdma.Access
	size   uint64

	mu  sync.RWMutex
	buf []byte // nil: ended
}

// regions is the table of what the peer may reach. Safe for concurrent use.
type regions struct {
	mu     sync.Mutex
	byTag  map[rdma.STag]*region
	closed bool
}

// Register exposes b to the peer. STags are random, so that a peer cannot guess
// one that it was not given. It fails with net.ErrClosed when the queue pair has
// been closed.
func (q *QueuePair) Register(b []byte, access rdma.Access) (rdma.Region, error) {
	if uint64(len(b)) > 1<<31 {
		return rdma.Region{}, fmt.Errorf("shm: a region of %d bytes: the limit is 2^31", len(b))
	}
	t := &q.regions
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return rdma.Region{}, net.ErrClosed
	}
	if t.byTag == nil {
		t.byTag = make(map[rdma.STag]*region)
	}
	for {
		var r [4]byte
		rand.Read(r[:])
		tag := rdma.STag(binary.NativeEndian.Uint32(r[:]))
		if _, taken := t.byTag[tag]; taken || tag == 0 {
			continue
		}
		t.byTag[tag] = &region{access: access, size: uint64(len(b)), buf: b}
		return rdma.Region{STag: tag}, nil
	}
}

// Invalidate ends the exposure of a region; of one that is unknown, nothing.
func (q *QueuePair) Invalidate(s rdma.STag) { q.revoke(s) }

// take removes a region from the table.
func (t *regions) take(tag rdma.STag) *region {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.byTag[tag]
	delete(t.byTag, tag)
	return r
}

// close ends every region, and every later Register.
func (t *regions) close() {
	t.mu.Lock()
	all := t.byTag
	t.byTag, t.closed = nil, true
	t.mu.Unlock()
	for _, r := range all {
		r.end()
	}
}

// end waits for whoever moves bytes to the region at the moment.
func (r *region) end() {
	r.mu.Lock()
	r.buf = nil
	r.mu.Unlock()
}

func unknown(tag rdma.STag) error {
	return violation("access", "STag %#x is not registered here", tag)
}

// find returns the region for an access of n bytes at va, or why the peer may not
// have it.
func (t *regions) find(tag rdma.STag, va uint64, n uint64, need rdma.Access) (*region, error) {
	t.mu.Lock()
	r := t.byTag[tag]
	t.mu.Unlock()
	switch {
	case r == nil:
		return nil, unknown(tag)
	case r.access&need == 0:
		return nil, violation("access", "STag %#x does not allow this access", tag)
	case va+n < va:
		return nil, violation("access", "offset %#x + %d wraps around", va, n)
	case va+n > r.size:
		return nil, violation("access", "offset %#x + %d is past the %d bytes of STag %#x", va, n, r.size, tag)
	}
	return r, nil
}
