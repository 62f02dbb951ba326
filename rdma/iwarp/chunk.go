package iwarp

import (
	"sync"
	"sync/atomic"
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
	c.qp = q
	c.refs.Store(1)
	return c
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
	c.qp = nil
	switch len(c.buf) {
	case smallChunk:
		smallChunks.Put(c)
	case bigChunk:
		bigChunks.Put(c)
	}
}
