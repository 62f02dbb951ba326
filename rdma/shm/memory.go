//go:build linux

package shm

import (
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/internal/rnic"
)

// Register exposes b to the peer; see rdma.QueuePair.
func (q *QueuePair) Register(b []byte, access rdma.Access) (rdma.Region, error) {
	return q.regions.Register(b, access)
}

// Invalidate ends the exposure of a region; see rdma.QueuePair.
func (q *QueuePair) Invalidate(s rdma.STag) { q.revoke(s) }

// findRegion returns the region for an access of n bytes at va, or the reason why the peer may not have
// it.
func (q *QueuePair) findRegion(tag rdma.STag, va, n uint64, need rdma.Access) (*rnic.Region, error) {
	r, denied := q.regions.Find(tag, va, n, need)
	if denied != nil {
		return nil, accessDenied(denied)
	}
	return r, nil
}

func accessDenied(d *rnic.Denial) error { return violation("access", "%s", d.What) }
