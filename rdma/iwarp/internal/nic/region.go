package nic

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"sync"

	"github.com/gosdp/gosdp/rdma"
)

// maxRegion is how many bytes one registration may expose.
const maxRegion = 1 << 31

// Regions is the table of the memory that the peer of one queue pair may access. The zero
// value is empty. It is safe for concurrent use.
type Regions struct {
	mu     sync.Mutex
	byTag  map[rdma.STag]*Region
	closed bool
}

// Region is registered memory. A goroutine that moves bytes to or from it holds it with
// Hold, and asks again for every segment. End waits for that goroutine, so no byte moves
// afterwards. The memory does not move: it escaped to the heap when it was registered.
type Region struct {
	access rdma.Access
	size   uint64

	mu  sync.RWMutex
	buf []byte // nil after End
}

// Register exposes b to the peer. STags are random, so a peer cannot guess one that it was
// not given (RFC 5042 §6.1.1). After Close it fails with net.ErrClosed.
func (t *Regions) Register(b []byte, access rdma.Access) (rdma.Region, error) {
	if uint64(len(b)) > maxRegion {
		return rdma.Region{}, fmt.Errorf("rdma: a region of %d bytes exceeds the limit of 2^31", len(b))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return rdma.Region{}, net.ErrClosed
	}
	if t.byTag == nil {
		t.byTag = make(map[rdma.STag]*Region)
	}
	for {
		var r [4]byte
		rand.Read(r[:])
		tag := rdma.STag(binary.NativeEndian.Uint32(r[:]))
		if _, taken := t.byTag[tag]; taken || tag == 0 {
			continue
		}
		t.byTag[tag] = &Region{access: access, size: uint64(len(b)), buf: b}
		return rdma.Region{STag: tag}, nil
	}
}

// Remove ends the exposure of a region. It returns false if there is none with this STag.
func (t *Regions) Remove(tag rdma.STag) bool {
	r := t.take(tag)
	if r == nil {
		return false
	}
	r.end()
	return true
}

// take takes a region out of the table.
func (t *Regions) take(tag rdma.STag) *Region {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.byTag[tag]
	delete(t.byTag, tag)
	return r
}

// Close ends every region. Register fails from then on.
func (t *Regions) Close() {
	t.mu.Lock()
	all := t.byTag
	t.byTag, t.closed = nil, true
	t.mu.Unlock()
	for _, r := range all {
		r.end()
	}
}

// Denial says why the peer may not make an access.
type Denial struct {
	Reason Reason
	What   string // what the peer did
}

// Reason is the reason for a Denial.
type Reason uint8

// The reasons, in the order in which Find checks them.
const (
	Unregistered Reason = iota // no region has the STag, or it has ended
	Forbidden                  // the region does not allow this kind of access
	Wraps                      // the end of the access is past the last address
	OutOfBounds                // the access leaves the region
)

// notRegistered is the Denial of an access to a region that does not exist, or has ended.
func notRegistered(tag rdma.STag) *Denial {
	return &Denial{Unregistered, fmt.Sprintf("STag %#x is not registered here", uint32(tag))}
}

// Find returns the region for an access of n bytes at the offset va, or the reason why the
// peer may not have it.
func (t *Regions) Find(tag rdma.STag, va, n uint64, need rdma.Access) (*Region, *Denial) {
	t.mu.Lock()
	r := t.byTag[tag]
	t.mu.Unlock()
	switch {
	case r == nil:
		return nil, notRegistered(tag)
	case r.access&need == 0:
		return nil, &Denial{Forbidden, fmt.Sprintf("STag %#x does not allow this access", uint32(tag))}
	case va+n < va:
		return nil, &Denial{Wraps, fmt.Sprintf("offset %#x + %d wraps around", va, n)}
	case va+n > r.size:
		return nil, &Denial{OutOfBounds, fmt.Sprintf("offset %#x + %d is past the %d bytes of STag %#x", va, n, r.size, uint32(tag))}
	}
	return r, nil
}

// Hold returns the n bytes at an offset, which Find has checked, and keeps the region from
// ending until Release. It returns nil, and Release must not be called, if the region has
// ended.
func (r *Region) Hold(off uint64, n int) []byte {
	r.mu.RLock()
	if r.buf == nil {
		r.mu.RUnlock()
		return nil
	}
	return r.buf[off : off+uint64(n)]
}

// Release lets the region end.
func (r *Region) Release() { r.mu.RUnlock() }

// Ended reports whether the region has ended.
func (r *Region) Ended() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.buf == nil
}

// end waits for the goroutines that hold the region.
func (r *Region) end() {
	r.mu.Lock()
	r.buf = nil
	r.mu.Unlock()
}
