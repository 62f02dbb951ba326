package iwarp

import (
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/internal/rnic"
)

// A connection's bytes are read into chunks, many FPDUs per read, and a message is lent where
// it lies. A connection that waits for bytes has no chunk, so an idle one costs none.
const (
	smallChunk = 16 << 10
	bigChunk   = rnic.BigChunk
)

var smallChunks = rnic.NewPool(smallChunk)

// newChunk returns a chunk of at least n bytes with one reference.
func (rx *receiver) newChunk(n int) *rnic.Chunk {
	switch {
	case n <= smallChunk:
		return rx.buffers.Get(smallChunks)
	case n <= bigChunk:
		return rx.buffers.Get(rnic.BigChunks)
	}
	return rx.buffers.Alone(n)
}

// lend puts the message b, which lies in c, on loan: in place, unless the queue pair holds
// too much memory.
func (rx *receiver) lend(c *rnic.Chunk, b []byte) rdma.Buffer {
	if !rx.buffers.Full() {
		c.Lend()
		return rdma.Buffer{Bytes: b, Owner: c}
	}
	alone := rx.buffers.Alone(len(b))
	copy(alone.Bytes, b)
	return rdma.Buffer{Bytes: alone.Bytes, Owner: alone}
}
