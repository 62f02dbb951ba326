package iwarp

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"sync"

	"github.com/gosdp/gosdp/rdma"
)

// region is registered memory. Whoever moves bytes to or from it holds mu for
// reading and looks at buf again each time; whoever ends it sets buf to nil
// under mu for writing, so that nothing lands afterwards.
type region struct {
	access rdma.Access
	size   uint64 // of the registration; buf is nil or has this length

	mu   sync.RWMutex
	live bool
	buf  []byte
}

// regions is the table of what one queue pair's peer may reach. Safe for
// concurrent use.
type regions struct {
	mu     sync.Mutex
	byTag  map[uint32]*region
	closed bool
}

// Register exposes b to the peer. STags are random, so that a peer cannot guess
// one that it was not given (RFC 5042 §6.1.1). It fails with net.ErrClosed when
// the queue pair has been closed.
func (q *QueuePair) Register(b []byte, access rdma.Access) (rdma.Region, error) {
	if uint64(len(b)) > 1<<31 {
		return rdma.Region{}, fmt.Errorf("iwarp: a region of %d bytes: the limit is 2^31", len(b))
	}
	t := &q.regions
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return rdma.Region{}, net.ErrClosed
	}
	if t.byTag == nil {
		t.byTag = make(map[uint32]*region)
	}
	for {
		var r [4]byte
		rand.Read(r[:])
		tag := binary.NativeEndian.Uint32(r[:])
		if _, taken := t.byTag[tag]; taken || tag == 0 {
			continue
		}
		t.byTag[tag] = &region{access: access, size: uint64(len(b)), live: true, buf: b}
		return rdma.Region{STag: rdma.STag(tag)}, nil
	}
}

// Invalidate ends the exposure of a region; of one that is unknown, nothing.
func (q *QueuePair) Invalidate(s rdma.STag) { q.regions.remove(uint32(s)) }

// remove reports whether there was a region of that STag.
func (t *regions) remove(tag uint32) bool {
	t.mu.Lock()
	r := t.byTag[tag]
	delete(t.byTag, tag)
	t.mu.Unlock()
	if r == nil {
		return false
	}
	r.end()
	return true
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

func (r *region) end() {
	r.mu.Lock()
	r.live, r.buf = false, nil
	r.mu.Unlock()
}

// find returns the region for an access of n bytes at to, or why the peer may
// not have it. kind is the Terminate's layer and type, whose codes are alike:
// RFC 5041 §7.2 for Writes, RFC 5040 §4.8 for Read Requests.
func (t *regions) find(tag uint32, to uint64, n int, need rdma.Access, kind terminateKind) (*region, error) {
	t.mu.Lock()
	r := t.byTag[tag]
	t.mu.Unlock()
	rule := "RFC 5041 §5.3"
	denied := uint8(0) // DDP has no code for rights: the STag is invalid for this use
	if kind == termRDMAPProtection {
		rule, denied = "RFC 5040 §5.2", 2
	}
	wrap := uint8(3)
	if kind == termRDMAPProtection {
		wrap = 4
	}
	switch {
	case r == nil:
		return nil, violation(kind, 0, rule, "STag %#x is not registered here", tag)
	case r.access&need == 0:
		return nil, violation(kind, denied, rule, "STag %#x does not allow this access", tag)
	case to+uint64(n) < to:
		return nil, violation(kind, wrap, rule, "offset %#x + %d wraps around", to, n)
	case to+uint64(n) > r.size:
		return nil, violation(kind, 1, rule, "offset %#x + %d is past the %d bytes of STag %#x", to, n, r.size, tag)
	}
	return r, nil
}
