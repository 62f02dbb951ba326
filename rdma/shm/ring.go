//go:build linux

package shm

import (
	"encoding/binary"
	"fmt"

	"github.com/gosdp/gosdp/rdma"
)

// A way is a stream of records in a byte ring. Positions count the bytes since
// the beginning and never wrap; the low bits of a position, counted from where
// the ring came into use, are the place in it.
//
// A record is a header of 8 bytes, a body, and padding to a multiple of 8. All
// begins in the small ring. recordGrow is the last record there, and what
// follows it lies in the big one. Going back needs no record: the way is empty
// then, and turn says so (shrink).
//
//	bits   0–31  length of the body
//	bits  32–39  kind
//	bits  40–63  depends on the kind
const headerLen = 8

// The kinds of records.
const (
	recordSend       = 1 + iota // a message
	recordInvalidate            // a message behind the STag that it invalidates (8 bytes)
	recordGrow                  // the big ring follows; no body
	recordWrite                 // an RDMA Write: STag, VA, length, where the bytes are
	recordRead                  // an RDMA Read Request: slot, STag, VA, length
	recordGrant                 // where the bytes of the Read in this slot are
	recordRefetched             // the Read in this slot has its bytes, or needs them no more
)

func header(kind, length, extra int) uint64 {
	return uint64(length) | uint64(kind)<<32 | uint64(extra)<<40
}

// space is what a record of that body takes.
func space(body int) int { return headerLen + (body+7)&^7 }

const noTurn = ^uint64(0)

// producer writes records. Its owner's lock guards it.
type producer struct {
	dir   *direction
	small []byte
	big   []byte
	ring  []byte // the one in use
	base  uint64 // the position at which it came into use
	was   uint64 // the same of the big ring, behind shrink
	pos   uint64 // behind what is written
	seen  uint64 // tail as it is published
	head  uint64 // the consumer's position, as it was last looked at
	turn  bool   // the way has gone back to the small ring, and nothing has been written since
}

func newProducer(a *area, way int) producer {
	p := producer{dir: &a.ctl.ways[way], small: a.small(way), big: a.big(way)}
	p.ring = p.small
	return p
}

// look reads the consumer's position. A peer that sets it back, or past what is
// there, breaks the rules.
func (p *producer) look() error {
	head := p.dir.head.Load()
	if head < p.head || head > p.seen {
		return violation("head", "it has taken up to %d; was %d, and %d are written", head, p.head, p.seen)
	}
	p.head = head
	return nil
}

// free is how many bytes can be written behind pos, as far as is known.
func (p *producer) free() int {
	return len(p.ring) - int(p.pos-max(p.head, p.base))
}

// fits reports whether a record of n bytes can be written, in the big ring if
// need be.
func (p *producer) fits(n int) (bool, error) {
	if &p.ring[0] == &p.small[0] {
		// There is always room for recordGrow.
		if n <= smallRing/2 && p.free() >= n+headerLen {
			return true, nil
		}
		if err := p.look(); err != nil {
			return false, err
		}
		if n <= smallRing/2 && p.free() >= n+headerLen {
			return true, nil
		}
		p.grow()
	}
	if p.free() >= n {
		return true, nil
	}
	err := p.look()
	return p.free() >= n, err
}

// grow goes on in the big ring, of which nothing is in use.
func (p *producer) grow() {
	if p.turn { // nothing is in the small ring, and nobody knows that it was to be
		p.dir.turn.Store(noTurn)
		p.ring, p.base, p.turn = p.big, p.was, false
		return
	}
	p.putHeader(header(recordGrow, 0, 0))
	p.ring, p.base = p.big, p.pos
}

// shrink goes back to the small ring and frees the big one's pages, if nothing
// is in it.
func (p *producer) shrink() error {
	if &p.ring[0] == &p.small[0] {
		return nil
	}
	if err := p.look(); err != nil || p.head != p.pos {
		return err
	}
	giveBack(p.big)
	p.dir.turn.Store(p.pos)
	p.ring, p.base, p.was, p.turn = p.small, p.pos, p.base, true
	return nil
}

// putHeader and put write behind what is there; the caller has asked fits. pad
// ends the record.
func (p *producer) putHeader(h uint64) {
	at := int(p.pos-p.base) & (len(p.ring) - 1)
	binary.NativeEndian.PutUint64(p.ring[at:], h)
	p.pos += headerLen
}

func (p *producer) put(b []byte) {
	at := int(p.pos-p.base) & (len(p.ring) - 1)
	if n := copy(p.ring[at:], b); n < len(b) {
		copy(p.ring, b[n:])
	}
	p.pos += uint64(len(b))
}

func (p *producer) pad() { p.pos = (p.pos + 7) &^ 7 }

// publish shows the consumer what has been written, and reports whether it
// sleeps and is to be woken.
func (p *producer) publish() (wake bool) {
	if p.pos == p.seen {
		return false
	}
	p.seen, p.turn = p.pos, false
	raceRelease()
	p.dir.tail.Store(p.pos)
	return p.dir.idle.Load() != 0 && p.dir.idle.Swap(0) != 0
}

// consumer reads records. It belongs to the polling goroutine.
type consumer struct {
	dir   *direction
	small []byte
	big   []byte
	ring  []byte
	base  uint64
	pos   uint64 // behind what has been taken
	tail  uint64 // the producer's, as it was last looked at
}

func newConsumer(a *area, way int) consumer {
	c := consumer{dir: &a.ctl.ways[way], small: a.small(way), big: a.big(way)}
	c.ring = c.small
	return c
}

// record is what a header says.
type record struct {
	kind, length, extra int
}

// some reports that there is a record, or an error.
func (c *consumer) some() bool { return c.dir.tail.Load() != c.pos }

// next returns the record at pos, if there is one, whole. Everything that the
// peer has written about it is read here, once: body reads no more than this
// has found to be there.
func (c *consumer) next() (r record, ok bool, err error) {
	if c.pos == c.tail {
		tail := c.dir.tail.Load()
		switch {
		case tail == c.pos:
			return r, false, nil
		case tail < c.pos || tail-c.pos > smallRing+bigRing || tail%8 != 0:
			return r, false, violation("tail", "it says to have written up to %d; %d are taken", tail, c.pos)
		}
		raceAcquire()
		c.tail = tail
		if c.dir.turn.Load() == c.pos {
			c.ring, c.base = c.small, c.pos
		}
	}
	at := int(c.pos-c.base) & (len(c.ring) - 1)
	h := binary.NativeEndian.Uint64(c.ring[at:])
	r = record{kind: int(h >> 32 & 0xFF), length: int(uint32(h)), extra: int(h >> 40)}
	if n := space(r.length); uint64(n) > c.tail-c.pos || n > len(c.ring) {
		return r, false, violation("record", "one of %d bytes where there are %d", r.length, c.tail-c.pos)
	}
	return r, true, nil
}

// body copies the beginning of the record's body to b, which is not longer.
func (c *consumer) body(b []byte, from int) {
	at := int(c.pos-c.base+headerLen+uint64(from)) & (len(c.ring) - 1)
	if n := copy(b, c.ring[at:]); n < len(b) {
		copy(b[n:], c.ring)
	}
}

// done takes the record away; the producer is told by release.
func (c *consumer) done(r record) {
	c.pos += uint64(space(r.length))
	if r.kind == recordGrow {
		c.ring, c.base = c.big, c.pos
	}
}

// release tells the producer how far the consumer is, and reports whether it
// sleeps and is to be woken.
func (c *consumer) release() (wake bool) {
	c.dir.head.Store(c.pos)
	return c.dir.full.Load() != 0 && c.dir.full.Swap(0) != 0
}

// violation is the error for what a peer has put into the shared memory.
func violation(what, format string, args ...any) *rdma.ProtocolError {
	return &rdma.ProtocolError{Rule: "shm, " + what, What: fmt.Sprintf(format, args...)}
}
