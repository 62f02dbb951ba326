// Package shm carries bytes between two processes of one host in memory that both map.
//
// A [Segment] is that memory: a sealed memory file with a gate, a ring and two sleep words
// for each direction. In the ring are the bytes of a stream and nothing else. A [Producer] copies
// a Write into the ring, a [Consumer] copies from there into a Read's slice, and the space
// between their positions is all the flow control there is. A [Doorbell] is a Unix socket
// over which one process wakes the other.
//
// The peer may change every byte of a segment at any time. Both ends read a position once,
// check it, and keep their own in private memory, so the worst that a hostile peer causes is
// garbage in its own stream, or an error that wraps [ErrCorrupt].
package shm
