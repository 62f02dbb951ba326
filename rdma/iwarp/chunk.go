package iwarp

import (
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp/internal/nic"
)

// A connection's bytes are read into chunks, many FPDUs per read, and a message is lent where
// it lies. A connection that waits for bytes has no chunk, so an idle one costs none.
const (
	smallChunk = 16 << 10
	bigChunk   = nic.BigChunk
)

var smallChunks = nic.NewPool(smallChunk)

// newChunk returns a chunk of at least n bytes with one reference.
func (rx *receiver) newChunk(n int) *nic.Chunk {
	switch {
	case n <= smallChunk:
		return rx.buffers.Get(smallChunks)
	case n <= bigChunk:
		return rx.buffers.Get(nic.BigChunks)
	}
	return rx.buffers.Alone(n)
}

// lend puts the message b, which lies in c, on loan: in place, unless the queue pair holds
// too much memory.
func (rx *receiver) lend(c *nic.Chunk, b []byte) rdma.Buffer {
	if !rx.buffers.Full() {
		c.Lend()
		return rdma.Buffer{Bytes: b, Owner: c}
	}
	alone := rx.buffers.Alone(len(b))
	copy(alone.Bytes, b)
	return rdma.Buffer{Bytes: alone.Bytes, Owner: alone}
}
