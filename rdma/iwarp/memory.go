package iwarp

import (
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp/internal/nic"
)

// Register exposes b to the peer; see rdma.QueuePair.
func (q *QueuePair) Register(b []byte, access rdma.Access) (rdma.Region, error) {
	return q.regions.Register(b, access)
}

// Invalidate ends the exposure of a region; see rdma.QueuePair.
func (q *QueuePair) Invalidate(s rdma.STag) { q.regions.Remove(s) }

// findRegion returns the region for an access of n bytes at to, or why the peer may not have
// it. kind says which message asked, and with it the rule and the codes of the Terminate.
func (q *QueuePair) findRegion(stag uint32, to uint64, n int, need rdma.Access, kind terminateKind) (*nic.Region, error) {
	r, denied := q.regions.Find(rdma.STag(stag), to, uint64(n), need)
	if denied != nil {
		return nil, accessFault(kind, denied)
	}
	return r, nil
}

// The codes of a Terminate for each reason: of a Write (RFC 5041 §7.2), which has none for
// missing rights, so the STag counts as invalid for this use; and of a Read Request (RFC 5040
// §4.8).
var (
	taggedCodes = [...]uint8{nic.Unregistered: 0, nic.Forbidden: 0, nic.Wraps: 3, nic.OutOfBounds: 1}
	readCodes   = [...]uint8{nic.Unregistered: 0, nic.Forbidden: 2, nic.Wraps: 4, nic.OutOfBounds: 1}
)

func accessFault(kind terminateKind, d *nic.Denial) error {
	if kind == termRDMAPProtection {
		return violation(kind, readCodes[d.Reason], "RFC 5040 §5.2", "%s", d.What)
	}
	return violation(kind, taggedCodes[d.Reason], "RFC 5041 §5.3", "%s", d.What)
}
