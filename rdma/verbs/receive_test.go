//go:build linux && cgo

package verbs

import (
	"math"
	"testing"

	"golang.org/x/sys/unix"
)

// Buffers that are posted beyond those that were asked for do not let a message pass that was sent
// without credit, whichever buffers are free.
func TestReserved(t *testing.T) {
	for free := range slack {
		r := receiver{count: 16}
		for i := range r.count + extra {
			b := &buffer{number: uint32(i)}
			r.buffers = append(r.buffers, b)
		}
		r.posted = r.count + extra
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
}

// The memory of receive buffers is freed when the queue pair ends, including that of posted ones; the
// memory of a lent message when it is released.
func TestPoolsGivenBack(t *testing.T) {
	const size = 4096
	q := &QueuePair{}
	r := &q.rx
	r.q, r.size = q, size
	newTestPool := func(posted, lent int) (*pool, []*buffer) {
		mem, err := unix.Mmap(-1, 0, (posted+lent)*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		must(t, err)
		p := &pool{mem: mem, size: size, in: posted + lent}
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
	r.q, r.count, r.size = q, 16, size
	for _, n := range []int{mostPooled/size - recvDepth, recvDepth} { // the last is the one in use
		mem, err := unix.Mmap(-1, 0, n*size, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
		must(t, err)
		defer unix.Munmap(mem)
		r.pool = &pool{mem: mem, size: size, in: n, former: n != recvDepth}
		r.pools = append(r.pools, r.pool)
	}
	used := r.pool
	r.posted, r.lent = 16+extra, 0
	for range 3 {
		if old := q.ProvideReceive(16, 2*size); old != math.MaxInt32 {
			t.Fatalf("%d buffers are still posted", old)
		}
	}
	if r.pool != used || r.size != size || q.failed() != nil {
		t.Fatalf("the pool in use has gone: %v", q.failed())
	}
}
