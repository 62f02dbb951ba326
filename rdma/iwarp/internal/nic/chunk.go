package nic

import (
	"math"
	"sync"
	"sync/atomic"
)

// BigChunk is the size of the chunks in BigChunks.
const BigChunk = 256 << 10

// BigChunks is the pool for connections that stream.
var BigChunks = NewPool(BigChunk)

// Buffers counts the receive buffers of one queue pair. A buffer is only a promise: the
// memory is found when a message arrives. The zero value has none. It is safe for concurrent
// use.
type Buffers struct {
	count, posted, size atomic.Int32
	held                atomic.Int64 // bytes in chunks, including those with messages on loan
	limit               atomic.Int64 // of held, beyond which each message gets memory of its own
}

// Provide sets the number of buffers and the size of each; see rdma.QueuePair.ProvideReceive.
func (b *Buffers) Provide(count, size int) {
	n := int32(min(count, math.MaxInt32))
	b.posted.Add(n - b.count.Swap(n))
	b.size.Store(int32(min(size, math.MaxInt32)))
	b.limit.Store(holdable(count, size))
}

// holdable is how many bytes of chunks a queue pair may hold with this number of buffers.
// Messages that are stored side by side fill them, except for headers and the ends of chunks.
func holdable(count, size int) int64 {
	promised := int64(count) * int64(size)
	return promised + promised/8 + 2*BigChunk
}

// Held is how many bytes of chunks the queue pair holds.
func (b *Buffers) Held() int64 { return b.held.Load() }

// Size is how many bytes a message may have.
func (b *Buffers) Size() int { return int(b.size.Load()) }

// Take uses up one buffer. It returns false if none was posted.
func (b *Buffers) Take() bool { return b.posted.Add(-1) >= 0 }

// Full reports whether the queue pair holds much more memory than its buffers would. Then a
// message on loan gets a chunk of its own (Alone): otherwise a peer could place each message
// that the program keeps in a chunk full of messages that it does not keep.
func (b *Buffers) Full() bool { return b.held.Load() > b.limit.Load() }

// Chunk is memory for received messages, many to one chunk, which are lent from there. It is
// reference counted: one reference for the queue pair that fills it, one for each message on
// loan. The last reference returns it to its pool.
type Chunk struct {
	Bytes []byte
	owner *Buffers
	pool  *Pool // nil: the garbage collector's
	refs  atomic.Int32
}

// Pool recycles chunks of one size.
type Pool struct {
	size int
	free sync.Pool
}

// NewPool returns a pool of chunks of size bytes.
func NewPool(size int) *Pool { return &Pool{size: size} }

// Get returns a chunk from the pool with one reference.
func (b *Buffers) Get(p *Pool) *Chunk {
	c, ok := p.free.Get().(*Chunk)
	if !ok {
		c = &Chunk{Bytes: make([]byte, p.size), pool: p}
	}
	return b.own(c)
}

// Alone returns a new chunk of n bytes with one reference.
func (b *Buffers) Alone(n int) *Chunk { return b.own(&Chunk{Bytes: make([]byte, n)}) }

func (b *Buffers) own(c *Chunk) *Chunk {
	c.owner = b
	c.refs.Store(1)
	b.held.Add(int64(len(c.Bytes)))
	return c
}

// Lend adds a reference, which Release gives up.
func (c *Chunk) Lend() { c.refs.Add(1) }

// Sole reports whether there is one reference only: no message in the chunk is on loan.
func (c *Chunk) Sole() bool { return c.refs.Load() == 1 }

// Release ends the loan of one message and posts its buffer again; see rdma.Lender.
func (c *Chunk) Release() {
	c.owner.posted.Add(1)
	c.Drop()
}

// Drop gives up one reference.
func (c *Chunk) Drop() {
	if c.refs.Add(-1) != 0 {
		return
	}
	c.owner.held.Add(-int64(len(c.Bytes)))
	c.owner = nil
	if c.pool != nil {
		c.pool.free.Put(c)
	}
}
