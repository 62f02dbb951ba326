package iwarp

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/gosdp/gosdp/rdma"
)

// The bytes of a connection are read into chunks, many FPDUs to a read, and a
// message is lent where it lies. A chunk is the queue pair's while it reads into
// it, and goes back to the pool when that is over and no message in it is lent
// any more. A connection that waits for bytes has no chunk, so that an idle one
// costs none.
const (
	smallChunk = 16 << 10
	bigChunk   = 256 << 10
)

// chunk is reference counted: one for the queue pair that reads into it, one for
// each message on loan.
type chunk struct {
	qp   *QueuePair
	refs atomic.Int32
	buf  []byte
}

var smallChunks = sync.Pool{New: func() any { return &chunk{buf: make([]byte, smallChunk)} }}
var bigChunks = sync.Pool{New: func() any { return &chunk{buf: make([]byte, bigChunk)} }}

// newChunk returns a chunk of at least n bytes with one reference.
func (q *QueuePair) newChunk(n int) *chunk {
	var c *chunk
	switch {
	case n <= smallChunk:
		c = smallChunks.Get().(*chunk)
	case n <= bigChunk:
		c = bigChunks.Get().(*chunk)
	default:
		c = &chunk{buf: make([]byte, n)}
	}
	q.own(c)
	return c
}

// own makes c the queue pair's, with one reference.
func (q *QueuePair) own(c *chunk) {
	c.qp = q
	c.refs.Store(1)
	q.rx.held.Add(int64(len(c.buf)))
}

// lend puts the message b, which lies in c, on loan: there, unless the queue pair
// holds much more than its receive buffers would. A peer could have each message
// lie alone in a chunk, between what nobody keeps.
func (rx *receiver) lend(c *chunk, b []byte) rdma.Buffer {
	if rx.held.Load() <= rx.hold.Load() {
		c.refs.Add(1)
		return rdma.Buffer{Bytes: b, Owner: c}
	}
	alone := &chunk{buf: bytes.Clone(b)}
	rx.q.own(alone)
	return rdma.Buffer{Bytes: alone.buf, Owner: alone}
}

// holdable is how many bytes of chunks a queue pair may hold with so many receive
// buffers. Messages that lie side by side fill them, but for the headers between
// them and the ends of the chunks.
func holdable(count, size int) int64 {
	promised := int64(count) * int64(size)
	return promised + promised/8 + 2*bigChunk
}

// Release ends the loan of one message: its buffer is posted again.
func (c *chunk) Release() {
	c.qp.rx.posted.Add(1)
	c.drop()
}

// drop gives up one reference.
func (c *chunk) drop() {
	if c.refs.Add(-1) != 0 {
		return
	}
	c.qp.rx.held.Add(-int64(len(c.buf)))
	c.qp = nil
	switch len(c.buf) {
	case smallChunk:
		smallChunks.Put(c)
	case bigChunk:
		bigChunks.Put(c)
	}
}
