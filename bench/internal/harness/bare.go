package harness

import (
	"io"
	"net"
	"sync/atomic"
	"time"
)

// What two processes and shared memory can do at all: a ring of bytes in each direction, with the two copies that a
// stream socket needs. Nothing is checked, and whoever waits polls.

// bareConn is one end of such a connection. Deadlines have no effect.
type bareConn struct {
	net.Conn // over which the ends found each other
	in, out  bareRing
}

// bareRing is one direction. Each position has a pair of cache lines of its own.
type bareRing struct {
	head, tail *atomic.Uint64
	ended      *atomic.Uint32
	data       []byte // a power of two
	seen       uint64 // of the other end's position
	pos        uint64 // the own one
}

const (
	bareLine   = 128
	bareHeader = 4 << 10
	barePiece  = 64 << 10 // after which a position is published
	bareStream = 256 << 10
)

// bareSize returns the size of a ring. For round trips it is a slot of the message's size.
func bareSize(load Case) int {
	if load.Kind != RTT {
		return bareStream
	}
	size := 64
	for size < load.Size {
		size *= 2
	}
	return size
}

func (c *bareConn) Write(b []byte) (int, error) {
	r := &c.out
	for rest := b; len(rest) > 0; {
		size := uint64(len(r.data))
		for wait := (poll{}); r.pos-r.seen == size; r.seen = r.tail.Load() {
			wait.once()
		}
		at := r.pos & (size - 1)
		n := copy(r.data[at:min(size, at+size-(r.pos-r.seen))], rest[:min(len(rest), barePiece)])
		rest = rest[n:]
		r.pos += uint64(n)
		r.head.Store(r.pos)
	}
	return len(b), nil
}

func (c *bareConn) Read(b []byte) (int, error) {
	r := &c.in
	for wait := (poll{}); r.seen == r.pos; r.seen = r.head.Load() {
		if wait.n > bareSpins && r.ended.Load() != 0 {
			return 0, io.EOF
		}
		wait.once()
	}
	at := r.pos & uint64(len(r.data)-1)
	n := copy(b[:min(len(b), barePiece)], r.data[at:min(uint64(len(r.data)), at+r.seen-r.pos)])
	r.pos += uint64(n)
	r.tail.Store(r.pos)
	return n, nil
}

func (c *bareConn) Close() error {
	c.out.ended.Store(1)
	return c.Conn.Close()
}

// Deadlines would need a clock in the loops that poll.
func (c *bareConn) SetDeadline(time.Time) error      { return nil }
func (c *bareConn) SetReadDeadline(time.Time) error  { return nil }
func (c *bareConn) SetWriteDeadline(time.Time) error { return nil }

// A poll waits between two looks at a position: first not at all, then for other threads, and after some milliseconds,
// while other contenders take their turns, by sleeping.
type poll struct {
	n     int
	began time.Duration
}

const (
	bareSpins  = 2000
	barePolls  = 10 * time.Millisecond
	bareSleeps = time.Millisecond
)

func (p *poll) once() {
	switch p.n++; {
	case p.n < bareSpins:
	case p.n == bareSpins:
		p.began = time.Since(epoch)
	case time.Since(epoch)-p.began < barePolls:
		yieldProcessor()
	default:
		time.Sleep(bareSleeps)
	}
}
