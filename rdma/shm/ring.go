//go:build linux

package shm

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/gosdp/gosdp/internal/budget"
	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
)

// One direction is a stream of records in a byte ring. Positions count the bytes since the
// beginning and never wrap. The low bits of a position, counted from where the ring came into use,
// are the index in the ring.
//
// A record is a header of 8 bytes, a body, and padding to a multiple of 8. The header is written
// last, and tells the consumer that there is a record, so the news and its content arrive in one
// cache line. Its stamp distinguishes it from older contents of the ring. The stamp is made of the
// position and a key that the two processes share, so a stranger whose bytes go over the connection
// cannot make them look like a header.
//
//	bits   0–19  length of the body
//	bits  20–23  kind; 0 is none, as in memory that was never written
//	bits  24–63  stamp
//
// The last record may be open: the producer appends to it, and then changes the length in the
// header with a compare-and-swap. The consumer takes an open record by swapping its header for 0,
// so each byte is either in what it took or in a later record. A process may be killed between any
// two instructions: bytes that no header counts were never written.
//
// A connection begins in the small ring. The big one is charged to the budget of the process that
// writes it. recordGrow is the last record in the small ring, and the next one is in the big ring.
// Going back needs no record: the ring is empty then, and turn says so (shrink).
const headerLen = 8

// The kinds of records.
const (
	recordSend       = 1 + iota // a message
	recordInvalidate            // a message, after the STag that it invalidates (8 bytes)
	recordGrow                  // the big ring follows; no body
	recordWrite                 // an RDMA Write: STag, VA, length, where the bytes are
	recordRead                  // an RDMA Read Request: slot, STag, VA, length
	recordGrant                 // where the bytes of the Read in this slot are
	recordRefetched             // the Read in this slot has its bytes, or no longer needs them
	recordOpen                  // a message that may still grow
)

const (
	lengthBits = 20
	stampShift = 24
)

// stampOf returns the upper part of the header of a record at pos.
func stampOf(key, pos uint64) uint64 { return (key ^ pos>>3) << stampShift }

// header returns the lower part.
func header(kind, length int) uint64 { return uint64(length) | uint64(kind)<<lengthBits }

// word returns the header at an index of a ring.
func word(ring []byte, at int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&ring[at : at+8][0]))
}

// space returns how many bytes a record with this body takes.
func space(body int) int { return headerLen + (body+7)&^7 }

// producer writes records. Its owner's mutex guards it.
type producer struct {
	dir   *direction
	small []byte
	big   []byte
	ring  []byte // small or big
	key   uint64
	base  uint64 // the position at which ring came into use
	pos   uint64 // where the next record goes
	head  uint64 // the consumer's position when it was last read
	sent  uint64 // bytes of payload in messages

	unannounced int32 // bytes written since this end last checked whether the consumer sleeps
	open        int32 // bytes in the body of the last record, if it may grow; 0 otherwise
}

func newProducer(a *area, way int) producer {
	p := producer{dir: &a.ctl.ways[way], small: a.small(way), big: a.big(way), key: a.key(way)}
	p.ring = p.small
	return p
}

// look reads the consumer's position. A peer that moves it back, or past what was written, violates
// a rule.
func (p *producer) look() error {
	head := p.dir.head.Load()
	if head < p.head || head > p.pos || head%8 != 0 {
		return violation("head", "head moved to %d, from %d with %d written", head, p.head, p.pos)
	}
	p.head = head
	return nil
}

func (p *producer) atSmall() bool { return &p.ring[0] == &p.small[0] }

// free returns how many bytes can be written at pos, as far as is known.
func (p *producer) free() int {
	return len(p.ring) - int(p.pos-max(p.head, p.base))
}

// smallRecord is the longest record that goes through the small ring. If half of that ring is free,
// such a record fits, followed by recordGrow.
const smallRecord = smallRing/2 - headerLen

// fits reports whether a record of n bytes can be written, if necessary in the big ring.
func (p *producer) fits(n int) (bool, error) {
	if p.atSmall() {
		// Room for recordGrow is always kept.
		if n <= smallRecord && p.free() >= n+headerLen {
			return true, nil
		}
		if err := p.look(); err != nil {
			return false, err
		}
		if n <= smallRecord && p.free() >= n+headerLen {
			return true, nil
		}
		if !p.widen() {
			if n <= smallRecord {
				return false, nil
			}
			budget.Process.Charge(bigRing) // the record fits nowhere else
			p.grow()
		}
	}
	if p.free() >= n {
		return true, nil
	}
	err := p.look()
	return p.free() >= n, err
}

// widen switches to the big ring, if the budget allows it.
func (p *producer) widen() bool {
	if !budget.Process.Take(bigRing) {
		return false
	}
	p.grow()
	return true
}

// giveUp returns the charge for the big ring. Nothing is written afterwards.
func (p *producer) giveUp() {
	if !p.atSmall() {
		budget.Process.Give(bigRing)
	}
}

// grow switches to the big ring, which must be empty and charged.
func (p *producer) grow() {
	p.put(recordGrow)
	p.ring, p.base = p.big, p.pos
}

// shrink switches back to the small ring and frees the pages of the big one, if that is empty.
func (p *producer) shrink() error {
	if p.atSmall() {
		return nil
	}
	if err := p.look(); err != nil || p.head != p.pos {
		return err
	}
	p.open = 0
	giveBack(p.big)
	p.dir.turn.Store(p.pos)
	p.ring, p.base = p.small, p.pos
	budget.Process.Give(bigRing)
	return nil
}

// put writes a record whose body consists of pieces. The caller has checked with fits.
func (p *producer) put(kind int, pieces ...[]byte) {
	start, n := p.pos, 0
	p.pos += headerLen
	for _, b := range pieces {
		p.copyIn(p.pos, b)
		p.pos += uint64(len(b))
		n += len(b)
	}
	p.pos = (p.pos + 7) &^ 7
	p.unannounced += int32(p.pos - start)
	p.open = 0
	wire.Release()
	p.word(start).Store(stampOf(p.key, start) | header(kind, n))
}

// copyIn copies b to the ring at pos.
func (p *producer) copyIn(pos uint64, b []byte) {
	at := int(pos-p.base) & (len(p.ring) - 1)
	if k := copy(p.ring[at:], b); k < len(b) {
		copy(p.ring, b[k:])
	}
}

// word returns the header at pos.
func (p *producer) word(pos uint64) *atomic.Uint64 {
	return word(p.ring, int(pos-p.base)&(len(p.ring)-1))
}

// putOpen writes a message that may grow.
func (p *producer) putOpen(head, payload []byte) {
	p.put(recordOpen, head, payload)
	p.open = int32(len(head) + len(payload))
}

// grown appends b to the last record, which is open. It returns false if it cannot.
func (p *producer) grown(b []byte) bool {
	was := int(p.open)
	length := was + len(b)
	start := p.pos - uint64(space(was))
	end := start + uint64(space(length))
	if more := int(end - p.pos); more > 0 && !p.roomFor(more) {
		return false
	}
	word, stamp := p.word(start), stampOf(p.key, start)
	from := stamp | header(recordOpen, was)
	p.copyIn(start+headerLen+uint64(was), b)
	wire.Release()
	if !word.CompareAndSwap(from, stamp|header(recordOpen, length)) {
		p.open = 0 // the consumer has taken the record; the copied bytes are in free space
		return false
	}
	p.open, p.pos = int32(length), end
	return true
}

// roomFor reports whether the last record can grow by n bytes in the present ring.
func (p *producer) roomFor(n int) bool {
	if p.atSmall() {
		n += headerLen // for recordGrow
	}
	return p.free() >= n || p.look() == nil && p.free() >= n
}

// tell reports whether the consumer sleeps and must be woken, for what was put since the last call.
func (p *producer) tell() (wake bool) {
	if p.unannounced == 0 {
		return false
	}
	p.unannounced = 0
	return p.asleep()
}

// asleep reports whether the consumer sleeps. The caller must then wake it.
func (p *producer) asleep() bool {
	return p.dir.idle.Load() != 0 && p.dir.idle.Swap(0) != 0
}

// consumer reads records. It belongs to the polling goroutine.
type consumer struct {
	dir   *direction
	small []byte
	big   []byte
	ring  []byte
	key   uint64
	base  uint64
	pos   uint64         // of the next record
	word  *atomic.Uint64 // the header at pos
	stamp uint64         // of that header, if there is a record
}

func newConsumer(a *area, way int) consumer {
	c := consumer{dir: &a.ctl.ways[way], small: a.small(way), big: a.big(way), key: a.key(way)}
	c.ring = c.small
	c.aim()
	return c
}

// aim points word at the header at pos.
func (c *consumer) aim() {
	c.word = word(c.ring, int(c.pos-c.base)&(len(c.ring)-1))
	c.stamp = stampOf(c.key, c.pos)
}

// The consumer leaves a short open record alone while it grows. It looks in steps that begin with
// some 0.7 µs and double, because each look takes the header's cache line from the producer. Only a
// program that writes one small message after the other makes open records; taking each of them at
// once would cost both ends several times as much for each message.
const (
	openWorth = 4 << 10 // a record of so many bytes is taken at once
	openPause = 16      // PAUSEs in the first step
	openSteps = 4
)

// record is the contents of a header.
type record struct{ kind, length int }

const lowBits = 1<<stampShift - 1

// hasRecord reports whether there is a record.
func (c *consumer) hasRecord() bool {
	h := c.word.Load()
	return h&^lowBits == c.stamp && h&lowBits>>lengthBits != 0 || c.turned()
}

// turned reports whether the record at pos will be in the small ring.
func (c *consumer) turned() bool { return c.dir.turn.Load() == c.pos && c.atBig() }

func (c *consumer) atBig() bool { return &c.ring[0] == &c.big[0] }

// next returns the record at pos, if there is one. It reads what the peer has written about it
// once, here.
func (c *consumer) next() (r record, ok bool, err error) {
	if c.turned() {
		c.ring, c.base = c.small, c.pos
		c.aim()
	}
	h := c.word.Load()
	if h&^lowBits != c.stamp || h&lowBits>>lengthBits == 0 {
		return r, false, nil
	}
	if h&lowBits>>lengthBits == recordOpen {
		for step := range openSteps {
			before := h
			if h&(1<<lengthBits-1) >= openWorth {
				break
			}
			spin.Pause(openPause << step)
			if h = c.word.Load(); h == before {
				break
			}
		}
		if h = c.word.Swap(0); h&^lowBits != c.stamp || h&lowBits>>lengthBits != recordOpen {
			return r, false, violation("record", "open record changed to %#x", h)
		}
	}
	wire.Acquire()
	r = record{kind: int(h & lowBits >> lengthBits), length: int(h & (1<<lengthBits - 1))}
	if space(r.length) > len(c.ring) {
		return r, false, violation("record", "record of %d bytes in a ring of %d", r.length, len(c.ring))
	}
	return r, true, nil
}

// body copies the record's body, from an offset on, to b, which is not longer.
func (c *consumer) body(b []byte, from int) {
	at := int(c.pos-c.base+headerLen+uint64(from)) & (len(c.ring) - 1)
	if n := copy(b, c.ring[at:]); n < len(b) {
		copy(b[n:], c.ring)
	}
}

// mayGrow returns nil if a recordGrow is allowed here.
func (c *consumer) mayGrow(r record) error {
	switch {
	case r.length != 0:
		return violation("record", "grow record of %d bytes", r.length)
	case c.atBig():
		return violation("record", "grow record in the big ring")
	}
	return nil
}

// done removes the record. release tells the producer.
func (c *consumer) done(r record) {
	c.pos += uint64(space(r.length))
	if r.kind == recordGrow {
		c.ring, c.base = c.big, c.pos
	}
	c.aim()
}

// release tells the producer how far the consumer is. It reports that the producer sleeps and must
// be woken.
func (c *consumer) release() (wake bool) {
	c.dir.head.Store(c.pos)
	return c.dir.full.Load() != 0 && c.dir.full.Swap(0) != 0
}

// violation returns the error for what a peer has put into the shared memory.
func violation(what, format string, args ...any) *rdma.ProtocolError {
	return &rdma.ProtocolError{Rule: "shm, " + what, What: fmt.Sprintf(format, args...)}
}
