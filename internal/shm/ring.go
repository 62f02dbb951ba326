package shm

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
)

// A ring has areas of three sizes. The stream begins in the smallest, which costs one page,
// and continues in a larger one when it needs the room. The producer decides. It announces for the area
// that it leaves at which position it does, so bytes may be unread in all of them.
const (
	areas  = 3
	small  = 4 << 10   // round trips stay in the first level of the cache
	medium = 256 << 10 // streams stay in the second
	large  = 4 << 20   // for a peer that does not read
)

// Medium is how many bytes Widen adds to a ring, and Largest how many Grow does.
const (
	Medium  = medium
	Largest = large
)

// piece is how many bytes a Put copies before it publishes them, so that the consumer can begin.
const piece = 64 << 10

// areaBits is the width of an area's number in a change.
const areaBits = 2

// way is the shared state of one direction's ring. Each word has one writer, except the
// sleep words: a sleeper sets its word, and the other end clears it before it rings. Words that
// one end writes often are in lines that the other end does not write, and in a pair of lines of
// their own, because processors fetch pairs.
type way struct {
	head atomic.Uint64        // producer: bytes that were put
	next [areas]atomic.Uint64 // producer: the last change out of each area, position<<areaBits | area
	full atomic.Uint32        // the producer sleeps until there is room
	_    [92]byte

	tail   atomic.Uint64 // consumer: bytes that were taken
	before atomic.Uint64 // consumer: bytes that were taken from TCP
	_      [112]byte

	idle atomic.Uint32 // the consumer sleeps until there is news
	_    [4]byte
	rang atomic.Uint64 // producer: when it last rang for the consumer
	_    [112]byte
}

// ErrCorrupt means that the peer has written an impossible value into the segment.
var ErrCorrupt = errors.New("shared memory is corrupt")

func corrupt(what string, value uint64) error {
	return fmt.Errorf("%w: %s %#x", ErrCorrupt, what, value)
}

// Producer is the end of a ring that writes. Its methods must not be called concurrently.
type Producer struct {
	*way
	mem   [areas][]byte
	pos   uint64 // the own copy of head
	taken uint64 // what was last seen of tail
	most  uint64 // that may be unread
	wide  bool   // it may use the medium area
	uses  []use  // of areas that the consumer has perhaps not left, and the current one
}

// use is that of an area from a position on.
type use struct {
	start uint64
	area  uint8
}

// current returns the use of the area into which the next byte goes.
func (p *Producer) current() use { return p.uses[len(p.uses)-1] }

func newProducer(w *way, mem [areas][]byte) Producer {
	return Producer{way: w, mem: mem, most: math.MaxInt64, uses: append(make([]use, 0, areas), use{})}
}

// look loads the consumer's position.
func (p *Producer) look() error {
	t := p.tail.Load()
	if t-p.taken > p.pos-p.taken { // it went back, or past what was put
		return corrupt("read position", t)
	}
	p.taken = t
	for len(p.uses) > 1 && p.uses[1].start < t { // the consumer has followed
		p.uses = append(p.uses[:0], p.uses[1:]...)
	}
	return nil
}

// room returns how many bytes fit, as far as the producer knows.
func (p *Producer) room() uint64 {
	u := p.current()
	return min(uint64(len(p.mem[u.area]))-(p.pos-max(p.taken, u.start)), p.most-min(p.most, p.pos-p.taken))
}

// Before returns how many bytes the consumer has taken from TCP, which come before those of the ring.
func (p *Producer) Before() uint64 { return p.before.Load() }

// Limit sets how many bytes may be unread, however large the areas are.
func (p *Producer) Limit(bytes int) { p.most = uint64(bytes) }

// Unread returns how many bytes the consumer has not taken. The error wraps ErrCorrupt.
func (p *Producer) Unread() (int, error) {
	err := p.look()
	return int(p.pos - p.taken), err
}

// Position returns how many bytes were put. It may be called at any time.
func (p *Producer) Position() uint64 { return p.head.Load() }

// Pending reports whether bytes are unread. It may be called at any time.
func (p *Producer) Pending() bool { return p.head.Load() != p.tail.Load() }

// Taken returns the consumer's position, as Unread has found it.
func (p *Producer) Taken() uint64 { return p.taken }

// HasRoom reports whether Put would copy something, or return an error.
func (p *Producer) HasRoom() bool { return p.look() != nil || p.room() > 0 }

// Put copies the beginning of b into the ring, at most one piece, and returns how many bytes
// that were: 0 if the ring is full. The consumer can read them at once; the caller then calls
// WakeReader. The error wraps ErrCorrupt.
func (p *Producer) Put(b []byte) (int, error) {
	n := uint64(min(len(b), piece))
	if p.room() < n || p.current().area == areas-1 {
		if err := p.look(); err != nil {
			return 0, err
		}
		p.fit(n)
		n = min(n, p.room())
		if n == 0 {
			return 0, nil
		}
	}
	m := p.mem[p.current().area]
	i := p.pos & uint64(len(m)-1)
	k := copy(m[i:], b[:n])
	copy(m, b[k:n])
	p.pos += n
	p.head.Store(p.pos)
	return int(n), nil
}

// fit changes to the medium area for n bytes that do not fit into the small one, and back from the
// large one once that is empty.
func (p *Producer) fit(n uint64) {
	area := p.current().area
	if area == 0 && p.wide && p.room() < n || area == areas-1 && p.taken == p.pos {
		p.change(1)
	}
}

// Wide reports whether Put may use the medium area. Widen allows it.
func (p *Producer) Wide() bool { return p.wide }

// Widen lets Put continue in the medium area when the small one is full.
func (p *Producer) Widen() { p.wide = true }

// CanGrow reports whether the medium area is full, and more may be unread.
func (p *Producer) CanGrow() bool {
	return p.current().area == 1 && p.room() == 0 && p.pos-p.taken < p.most
}

// Grow changes to the large area if the medium one is full. It reports whether there is room now.
func (p *Producer) Grow() bool {
	return p.CanGrow() && p.change(areas-1)
}

// change continues in another area, unless that has unread bytes, or the consumer has perhaps not seen the last change out
// of the current one. An area is not left at the position at which it was entered, so each change differs from the last one.
func (p *Producer) change(area uint8) bool {
	from := p.current()
	if area == from.area || p.pos == from.start && p.pos > 0 {
		return false
	}
	for i, u := range p.uses[:len(p.uses)-1] {
		if u.area == from.area || u.area == area && p.taken < p.uses[i+1].start {
			return false
		}
	}
	p.uses = append(p.uses, use{p.pos, area})
	p.way.next[from.area].Store(p.pos<<areaBits | uint64(area))
	return true
}

// Rest returns unread bytes of the ring from a position on, as many as lie together, for a producer
// that has been recalled. It is empty at the end.
func (p *Producer) Rest(from uint64) []byte {
	end := p.pos
	for i := len(p.uses) - 1; i >= 0; i-- {
		if u := p.uses[i]; from >= u.start || i == 0 {
			m := p.mem[u.area]
			at := from & uint64(len(m)-1)
			return m[at:min(at+end-from, uint64(len(m)))]
		}
		end = p.uses[i].start
	}
	return nil
}

// Consumer is the end of a ring that reads. Its methods must not be called concurrently.
type Consumer struct {
	*way
	mem  [areas][]byte
	pos  uint64 // the own copy of tail
	area uint8
	next [areas]uint64 // the change out of each area that was last followed
	most uint64        // that can be unread
}

// ready returns how many bytes up to head can be taken from one area. The changes are loaded after head, so
// they are those up to there, and perhaps later ones. The error wraps ErrCorrupt.
func (c *Consumer) ready(head uint64) (n uint64, err error) {
	if n = head - c.pos; n == 0 {
		return 0, nil
	}
	if n > c.most {
		return 0, corrupt("write position", head)
	}
	for range areas {
		next := c.way.next[c.area].Load()
		if next == c.next[c.area] {
			break
		}
		at, area := next>>areaBits, uint8(next&(1<<areaBits-1))
		d := at - c.pos
		if area >= areas || area == c.area || d > c.most {
			return 0, corrupt("change of area", next)
		}
		if d > 0 {
			n = min(n, d)
			break
		}
		c.next[c.area], c.area = next, area
	}
	if n > uint64(len(c.mem[c.area])) {
		return 0, corrupt("write position", head)
	}
	return n, nil
}

// Head returns how many bytes were put. It may be called at any time.
func (c *Consumer) Head() uint64 { return c.head.Load() }

// Position returns how many bytes were taken. It may be called at any time.
func (c *Consumer) Position() uint64 { return c.tail.Load() }

// Before tells how many bytes the consumer has taken from TCP.
func (c *Consumer) Before(n uint64) { c.before.Store(n) }

// Empty reports whether there is nothing to take.
func (c *Consumer) Empty() bool { return c.head.Load() == c.pos }

// Discard drops n bytes, or all that there are.
func (c *Consumer) Discard(n uint64) {
	for n > 0 {
		k, err := c.ready(c.head.Load())
		if k = min(k, n); k == 0 || err != nil {
			return
		}
		n -= k
		c.pos += k
		c.tail.Store(c.pos)
	}
}

// Take copies bytes from the ring into b and returns how many: 0 if the ring is empty. The
// caller then calls WakeWriter. The error wraps ErrCorrupt.
func (c *Consumer) Take(b []byte) (int, error) {
	return c.take(b, c.head.Load())
}

func (c *Consumer) take(b []byte, head uint64) (int, error) {
	n, err := c.ready(head)
	n = min(n, uint64(len(b)))
	m := c.mem[c.area]
	for b = b[:n]; len(b) > 0; { // the producer can go on after each piece
		i := c.pos & uint64(len(m)-1)
		k := copy(b[:min(len(b), piece)], m[i:])
		c.pos += uint64(k)
		c.tail.Store(c.pos)
		b = b[k:]
	}
	return int(n), err
}

// Sleep announces that the producer sleeps until there is room, or the direction is recalled. It
// looks at both once more before it does.
func (p *Producer) Sleep() { p.full.Store(1) }

// Sleeps reports whether it has announced that. It may be called at any time.
func (p *Producer) Sleeps() bool { return p.full.Load() != 0 }

// Awake takes the announcement back.
func (p *Producer) Awake() { p.full.Store(0) }

// WakeReader reports whether the consumer sleeps and the caller must ring for it.
func (p *Producer) WakeReader() bool { return wake(&p.idle) }

// Rang tells when the producer rings for the consumer, before it does.
func (p *Producer) Rang(at uint64) { p.rang.Store(at) }

// Rang returns when the producer has last rung, by its own account.
func (c *Consumer) Rang() uint64 { return c.rang.Load() }

// Sleep announces that the consumer sleeps until there is news: at its gate or in the ring. It looks at
// both once more before it does.
func (c *Consumer) Sleep() { c.idle.Store(1) }

// Sleeps reports whether it has announced that. It may be called at any time.
func (c *Consumer) Sleeps() bool { return c.idle.Load() != 0 }

// Awake takes the announcement back.
func (c *Consumer) Awake() { c.idle.Store(0) }

// WakeWriter reports whether the producer sleeps and the caller must ring for it: if half of the
// area is free, or at once if now is set.
func (c *Consumer) WakeWriter(now bool) bool {
	if c.full.Load() == 0 || !now && c.head.Load()-c.pos > uint64(len(c.mem[c.area])/2) {
		return false
	}
	return wake(&c.full)
}

func wake(sleeps *atomic.Uint32) bool {
	return sleeps.Load() != 0 && sleeps.Swap(0) != 0
}
