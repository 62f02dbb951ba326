//go:build linux

package shm

import (
	"sync"
	"sync/atomic"
)

// Messages are copied from the ring into chunks, many to one, and lent from
// there: a program that leaves a message unread holds up nobody then. A chunk is
// the queue pair's while it copies into it, and goes back to the pool when that
// is over and no message in it is lent any more. A connection that waits has no
// chunk, so that an idle one costs none.
const (
	smallChunk = 8 << 10
	bigChunk   = 256 << 10
)

// chunk is reference counted: one for the queue pair that copies into it, one for
// each message on loan.
type chunk struct {
	rx   *receiver
	refs atomic.Int32
	buf  []byte
}

var smallChunks = sync.Pool{New: func() any { return &chunk{buf: make([]byte, smallChunk)} }}
var bigChunks = sync.Pool{New: func() any { return &chunk{buf: make([]byte, bigChunk)} }}

// newChunk returns a chunk of at least n bytes, which are no more than a message
// can have, with one reference.
func (rx *receiver) newChunk(n int) *chunk {
	pool := &smallChunks
	if n > smallChunk/2 {
		pool = &bigChunks
	}
	return rx.own(pool.Get().(*chunk))
}

// own makes c the queue pair's, with one reference.
func (rx *receiver) own(c *chunk) *chunk {
	c.rx = rx
	c.refs.Store(1)
	rx.held.Add(int64(len(c.buf)))
	return c
}

// holdable is how many bytes of chunks a queue pair may hold with so many receive
// buffers. Messages that lie side by side fill them, but for their ends.
func holdable(count, size int) int64 {
	promised := int64(count) * int64(size)
	return promised + promised/8 + 2*bigChunk
}

// Release ends the loan of one message: its buffer is posted again.
func (c *chunk) Release() {
	c.rx.posted.Add(1)
	c.drop()
}

// drop gives up one reference.
func (c *chunk) drop() {
	if c.refs.Add(-1) != 0 {
		return
	}
	c.rx.held.Add(-int64(len(c.buf)))
	c.rx = nil
	switch len(c.buf) {
	case smallChunk:
		smallChunks.Put(c)
	case bigChunk:
		bigChunks.Put(c)
	}
}

// room returns n bytes for a message of the current chunk, or of a new one, and
// that chunk with a reference more. A queue pair that holds much more than its
// receive buffers would has each message lie by itself: a peer could fill the
// chunks with what nobody keeps, so that each held one message.
func (rx *receiver) room(n int) ([]byte, *chunk) {
	if rx.held.Load() > rx.hold.Load() {
		alone := rx.own(&chunk{buf: make([]byte, n)})
		return alone.buf, alone
	}
	if rx.cur != nil && rx.cur.refs.Load() == 1 {
		rx.filled = 0
	}
	if rx.cur == nil || len(rx.cur.buf)-int(rx.filled) < n {
		if rx.cur != nil {
			rx.cur.drop()
		}
		rx.cur, rx.filled = rx.newChunk(n), 0
	}
	b := rx.cur.buf[rx.filled:][:n:n]
	rx.filled += int32(n+7) &^ 7
	rx.cur.refs.Add(1)
	return b, rx.cur
}

// idle gives the chunk back while nothing comes. A small one that holds messages
// on loan is kept for the next as long as it has room, or each message that comes
// alone would hold a chunk of its own.
func (rx *receiver) idle() {
	if rx.cur != nil && (rx.cur.refs.Load() == 1 || len(rx.cur.buf)-int(rx.filled) < smallChunk/8) {
		rx.cur.drop()
		rx.cur = nil
	}
}
