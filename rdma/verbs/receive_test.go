//go:build linux && cgo

package verbs

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/gosdp/gosdp/rdma"
)

// Buffers that are posted beyond those that were asked for do not let a message pass that was sent
// without credit, whichever buffers are free.
func TestReserved(t *testing.T) {
	for _, count := range []int{8, 16, 33, mostBuffers} {
		slack := (&receiver{count: count}).slack()
		for free := range slack {
			r := receiver{count: count}
			for i := range r.count + r.extra() {
				b := &buffer{number: uint32(i)}
				r.buffers = append(r.buffers, b)
			}
			r.posted = r.count + r.extra()
			next := uint32(0)
			for range free { // they arrive and are released, but are not posted again yet
				if _, reserved := r.filled(next); reserved {
					t.Fatalf("message %d has credit", next)
				}
				next++
				r.lent--
			}
			for range r.count {
				if _, reserved := r.filled(next); reserved {
					t.Fatalf("message %d has credit, with %d buffers free", next, free)
				}
				next++
			}
			if _, reserved := r.filled(next); !reserved {
				t.Fatalf("message %d has no credit, with %d buffers free", next, free)
			}
		}
		if most := count + (&receiver{count: count}).extra(); most > recvDepth {
			t.Errorf("%d buffers are posted for %d, and the queue has room for %d", most, count, recvDepth)
		}
	}
}

// The memory of receive buffers is freed when the queue pair ends, including that of posted ones; the
// memory of a lent message when it is released.
func TestPoolsGivenBack(t *testing.T) {
	const size = 4096
	q := &QueuePair{}
	r := &q.rx
	r.q, r.size = q, size
	newTestPool := func(posted, lent int) (*pool, []*buffer) {
		mem, err := buffers.get((posted+lent)*size, needed)
		must(t, err)
		p := &pool{mem: mem, size: size, n: posted + lent, in: posted + lent}
		var lentOnes []*buffer
		for i := range posted + lent {
			b := &buffer{q: q, pool: p, number: uint32(len(r.buffers)), mem: mem[i*size:][:size]}
			r.buffers = append(r.buffers, b)
			r.posted++
			if i < lent {
				r.filled(b.number)
				lentOnes = append(lentOnes, b)
			}
		}
		r.pools = append(r.pools, p)
		return p, lentOnes
	}
	idle, _ := newTestPool(3, 0)
	read, unread := newTestPool(2, 2)
	r.closeLocked()
	if idle.mem != nil {
		t.Error("memory is kept of which nothing is lent")
	}
	for _, b := range unread {
		if read.mem == nil {
			t.Fatal("memory has gone of which something is lent")
		}
		b.mem[0] = 1
		b.Release()
	}
	if read.mem != nil {
		t.Error("memory is kept of which nothing is lent any more")
	}
}

// A peer that makes buffers change their size again and again, while the program leaves a message of
// each size unread, locks no more memory than mostPooled. The existing buffers stay in use.
func TestPoolsAreBounded(t *testing.T) {
	const size = 4096
	q := &QueuePair{}
	r := &q.rx
	r.q, r.count, r.size, r.have = q, 16, size, 16+r.extra()
	r.pools = []*pool{{mem: make([]byte, mostPooled-size), size: 2 * size, n: 1, in: 1}, {mem: make([]byte, size), size: size, n: 1, in: 1}}
	r.posted, r.lent = 16+r.extra(), 0
	for range 3 {
		if old := q.ProvideReceive(16, 2*size); old != math.MaxInt32 {
			t.Fatalf("%d buffers are still posted", old)
		}
	}
	if len(r.pools) != 2 || r.size != size || r.count != 16 || q.failed() != nil {
		t.Fatalf("the pool in use has gone: %v", q.failed())
	}
}

// testBuffers returns a queue pair whose device has these buffers, in pools by size. It has no memory.
func testBuffers(size, count int, posted ...int) *QueuePair {
	q := &QueuePair{}
	r := &q.rx
	r.q, r.size, r.count = q, size, count
	pools := make(map[int]*pool)
	for i, n := range posted {
		p := pools[n]
		if p == nil {
			p = &pool{mem: make([]byte, 0), size: n}
			pools[n] = p
			r.pools = append(r.pools, p)
		}
		p.n++
		p.in++
		r.buffers = append(r.buffers, &buffer{q: q, pool: p, number: uint32(i), mem: make([]byte, n)})
		r.posted++
	}
	return q
}

// TestAsksUntilNoLargeBufferIsPosted: the peer's device is asked to fill buffers as long as some are
// larger than they shall be, and not again before it has.
func TestAsksUntilNoLargeBufferIsPosted(t *testing.T) {
	q := testBuffers(2048, 16, 8192, 2048, 8192, 2048)
	r := &q.rx
	if !r.ask() || r.ask() {
		t.Fatal("it is asked once")
	}
	for i := range uint32(fills) {
		r.filled(i)
		must(t, q.heard(false))
	}
	if err := q.heard(false); err == nil || !strings.Contains(err.Error(), "without being asked") {
		t.Errorf("a message that was not asked for: %v", err)
	}
	if !r.ask() {
		t.Fatal("a large buffer is posted")
	}
	r.filled(2)
	must(t, q.heard(false))
	must(t, q.heard(false))
	if r.ask() {
		t.Error("no large buffer is posted")
	}
}

// TestAskedTwice: a peer may ask again only when it has got what it has asked for. So what it makes
// this end send is bounded by what it sends.
func TestAskedTwice(t *testing.T) {
	q := testBuffers(2048, 16)
	must(t, q.heard(true))
	if q.owed.Load() != fills || !q.chores.Load() {
		t.Fatalf("%d messages are to be sent", q.owed.Load())
	}
	if err := q.heard(true); err == nil || !strings.Contains(err.Error(), "again before") {
		t.Errorf("asked again: %v", err)
	}
	q.owed.Store(0)
	must(t, q.heard(true))
}

// TestUpkeepWaitsForRoom: what the peer's device has asked for is sent when the send queue has room
// again. Until then Wait parks.
func TestUpkeepWaitsForRoom(t *testing.T) {
	q := testBuffers(2048, 16)
	must(t, q.heard(true))
	q.tx.posted.Store(sendDepth)
	for range 2 {
		q.upkeep()
		if q.owed.Load() != fills || q.hasWork() {
			t.Fatalf("%d messages are to be sent, and Wait has work: %t", q.owed.Load(), q.hasWork())
		}
		q.sentLocked(q.tx.tail.Load())
		if !q.hasWork() {
			t.Fatal("a completion does not make Wait try again")
		}
	}
}

// TestFormerPoolsAreTrimmed: a pool of a former size goes with its last buffer, and one of the present
// size when it is not needed.
func TestFormerPoolsAreTrimmed(t *testing.T) {
	q := testBuffers(2048, 16, 8192, 8192)
	r := &q.rx
	var lent []*buffer
	for i := range uint32(2) {
		b, _ := r.filled(i)
		lent = append(lent, b)
	}
	mem := func() []byte {
		mem, err := buffers.get(8192, needed)
		must(t, err)
		return mem
	}
	r.pools[0].mem = mem()
	used := buffers.used
	r.dropLocked(lent[0])
	if len(r.pools) != 1 || buffers.used != used {
		t.Fatal("a message is unread in it")
	}
	r.dropLocked(lent[1])
	if len(r.pools) != 0 || buffers.used != used-8192 {
		t.Fatal("the pool is kept")
	}
	small := &pool{mem: mem(), size: 2048, n: 4}
	r.pools, r.have = []*pool{small}, 16+r.extra()+3
	r.trimLocked()
	if len(r.pools) != 1 {
		t.Fatal("one buffer of it is needed")
	}
	r.have++
	r.free = []*buffer{{pool: small}}
	r.trimLocked()
	if len(r.pools) != 0 || len(r.free) != 0 || r.have != 16+r.extra() {
		t.Fatal("none is needed")
	}
}

// TestOnlySendsAreMessages: an RDMA Write with Immediate uses up a receive buffer without filling it,
// and its completion has the length of the Write. It is a violation, and the program gets neither a
// panic nor what was in the buffer before.
func TestOnlySendsAreMessages(t *testing.T) {
	const send, writeWithImmediate = 128, 129
	for _, v := range []struct{ opcode, length int }{
		{writeWithImmediate, 256 << 10},
		{writeWithImmediate, 29},
		{writeWithImmediate, ownLen},
		{writeWithImmediate, 0},
		{send, 2049},
	} {
		q := testBuffers(2048, 16, 2048, 2048, 2048)
		allocate(&q.end)
		q.rx.posted = q.rx.count + q.rx.extra() // no buffer need be posted again
		q.hangOnce.Do(func() {})
		b := q.rx.buffers[0]
		copy(b.mem, fillText)
		q.rx.asked = 1
		wc := &q.wcs[0]
		wc.wr_id = received
		setField(&wc.opcode, v.opcode)
		setField(&wc.byte_len, v.length)
		q.completedLocked(wc)
		var violation *rdma.ProtocolError
		if !errors.As(q.failed(), &violation) {
			t.Errorf("%+v: %v", v, q.failed())
		}
		if q.ready.len() > 0 || q.empties > 0 || q.rx.asked != 1 {
			t.Errorf("%+v: it was taken for a message", v)
		}
		if q.rx.lent != 0 || b.pool.in != 2 {
			t.Errorf("%+v: the buffer was not released", v)
		}
	}
}

// setField assigns to a variable whose type may be C's.
func setField[T ~int32 | ~uint32](p *T, v int) { *p = T(v) }
