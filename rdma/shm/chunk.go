//go:build linux

package shm

import "github.com/gosdp/gosdp/rdma/internal/rnic"

// Messages are copied from the ring to chunks, many to one chunk, and lent from there, so a
// program that leaves a message unread does not block the ring. A connection that waits has
// no chunk, so an idle one costs none.
const (
	smallChunk = 8 << 10
	bigChunk   = rnic.BigChunk
)

var smallChunks = rnic.NewPool(smallChunk)

// alloc returns n bytes for a message, at most maxMessage, and the chunk that they are in,
// with a reference for the message: the current chunk, a new one if that is full, or one of
// the message's own if the queue pair holds too much memory.
func (rx *receiver) alloc(n int) ([]byte, *rnic.Chunk) {
	if rx.buffers.Full() {
		alone := rx.buffers.Alone(n)
		return alone.Bytes, alone
	}
	if rx.cur != nil && rx.cur.Sole() {
		rx.filled = 0
	}
	if rx.cur == nil || len(rx.cur.Bytes)-int(rx.filled) < n {
		if rx.cur != nil {
			rx.cur.Drop()
		}
		pool := smallChunks
		if n > smallChunk/2 {
			pool = rnic.BigChunks
		}
		rx.cur, rx.filled = rx.buffers.Get(pool), 0
	}
	b := rx.cur.Bytes[rx.filled:][:n:n]
	rx.filled += int32(n+7) &^ 7
	rx.cur.Lend()
	return b, rx.cur
}

// trim gives up the current chunk before the connection parks. It keeps a small one that
// still has room and messages on loan; otherwise each message that arrives alone would hold a
// chunk of its own.
func (rx *receiver) trim() {
	if rx.cur != nil && (rx.cur.Sole() || len(rx.cur.Bytes)-int(rx.filled) < smallChunk/8) {
		rx.cur.Drop()
		rx.cur = nil
	}
}
