package engine

import "github.com/gosdp/gosdp/wire"

const (
	maxAdverts = 16 // advertisements that the peer may have outstanding
	maxReads   = 16 // RDMA Reads outstanding, each way
)

// OurHello is what this end says of itself, whether it dials or listens, if the peer may have
// readBuffer bytes unread and the budget allows them. 0 means the default.
func OurHello(readBuffer int) wire.Hello {
	bufs, size := RecvBuffers, recvSize
	if readBuffer > 0 {
		bufs = min(bufs, max(leastBuffers, readBuffer/recvSize))
		size = min(size, max(smallestSize, readBuffer/bufs))
	}
	return wire.Hello{
		Bufs:       uint16(bufs),
		MaxAdverts: maxAdverts,
		LocalRcvSz: uint32(size),
		IRD:        maxReads,
		ORD:        maxReads,
	}
}
