//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/gosdp/gosdp/rdma"
)

// receiver has the receive buffers. The device fills them in the order in which they were posted, so
// those of a former size are used up first. It has only as many as were asked for, and a few more.
type receiver struct {
	q           *QueuePair
	mu          sync.Mutex
	count, size int // that were asked for
	posted      int
	lent        int
	turn        uint64    // of the last posted buffer
	have        int       // buffers of this size, posted, lent or free
	free        []*buffer // of those
	pools       []*pool   // all that are registered
	buffers     []*buffer // by number, which the device returns
	spare       []uint32  // unused numbers
	work        [64]C.struct_v_recv
	asked       int // messages that fill buffers which the peer owes; see fill.go
	closed      bool
}

// mostPooled is how many bytes the pools of a connection may have. Each change of size makes a new
// one, and a former one remains as long as a message in it is unread, which the peer can cause.
const mostPooled = 64 << 20

// pool is registered memory for buffers of one size. Its memory is given back when none of them is
// posted or lent, and the receiver does not need them.
type pool struct {
	mem     []byte // nil: it was given back
	mr      *C.struct_v_mr
	size, n int
	in      int             // buffers in use
	cleanup runtime.Cleanup // in case a loan is never released
}

// buffer is one receive buffer, and the rdma.Lender of its loan.
type buffer struct {
	q      *QueuePair
	pool   *pool
	number uint32
	turn   uint64 // when it was posted
	mem    []byte
}

// newPool returns a pool and its buffers, at least count.
func newPool(q *QueuePair, count, size int, c claim) (*pool, []*buffer, error) {
	step := rounded(size)
	mem, err := buffers.get(count*step, c)
	if err != nil {
		return nil, nil, err
	}
	p := &pool{mem: mem, size: size, n: len(mem) / step}
	if p.mr, err = registerMemory(q.end.pd, mem, C.V_ACCESS_LOCAL_WRITE); err != nil {
		buffers.put(mem)
		return nil, nil, err
	}
	p.cleanup = runtime.AddCleanup(p, buffers.put, mem)
	all := make([]*buffer, p.n)
	for i := range all {
		all[i] = &buffer{q: q, pool: p, mem: mem[i*step:][:size:size]}
	}
	return p, all, nil
}

// release takes the memory from the device and gives it back, unless a buffer is in use.
func (p *pool) release() {
	if p.in == 0 && p.mem != nil {
		p.deregister()
		p.cleanup.Stop()
		buffers.put(p.mem)
		p.mem = nil
	}
}

func (p *pool) deregister() {
	if p.mr != nil {
		_ = deregister(p.mr) // the peer has no access to it
		p.mr = nil
	}
}

// ProvideReceive sets how many receive buffers there are; see rdma.QueuePair. There are at most
// Limits.Buffers. It returns MaxInt32 if there is no memory for more, or for larger ones.
func (q *QueuePair) ProvideReceive(count, size int) (old int) {
	q.lockReap()
	defer q.reapMu.Unlock()
	old = q.provideReceiveLocked(count, size)
	if q.refusal.Load() != nil {
		q.reapLocked()
	}
	return old
}

// provideReceiveLocked is ProvideReceive with reapMu held.
func (q *QueuePair) provideReceiveLocked(count, size int) (old int) {
	r := &q.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0
	}
	wasCount, wasSize := r.count, r.size
	r.count, r.size = min(count, mostBuffers), min(size, maxMessage)
	switch err := r.provideLocked(wasSize); {
	case err == nil:
	case wasSize == 0:
		q.fail(err)
		return 0
	default: // what there is stays in use
		r.count, r.size = wasCount, wasSize
		return math.MaxInt32
	}
	if old = r.oldLocked(); old > 0 {
		for _, c := range q.ready.items[q.ready.head:] { // the caller has not seen these yet
			if c.Op == rdma.OpReceive {
				old++
			}
		}
	}
	r.postLocked()
	if r.largerLocked() {
		q.chores.Store(true) // they are to be used up
		q.in.kick()
	}
	return old
}

// provideLocked gets the memory for as many buffers as there shall be. was is their size until now.
// Buffers of another size that are in use count, except when the size changes.
func (r *receiver) provideLocked(was int) error {
	have, others := r.have, r.othersLocked()
	if r.size != was {
		have, others = 0, 0
	}
	if need := r.count + r.extra() - have - others; need > 0 {
		c := growing
		if r.size <= startSize && r.count <= startBuffers { // the least that a connection has
			c = opening
		}
		if err := r.addPoolLocked(need, was, c); err != nil {
			return err
		}
	}
	r.trimLocked()
	return nil
}

// addPoolLocked adds a pool of buffers. was is the size of those that are free.
func (r *receiver) addPoolLocked(need, was int, c claim) error {
	all := need * rounded(r.size)
	for _, p := range r.pools {
		all += len(p.mem)
	}
	if all > mostPooled {
		return fmt.Errorf("verbs: receive buffers of %d bytes exceed the maximum", all)
	}
	p, more, err := newPool(r.q, need, r.size, c)
	if err != nil {
		return err
	}
	if r.size != was {
		r.free, r.have = nil, 0
	}
	r.pools = append(r.pools, p)
	r.free = append(r.free, more...)
	r.have += len(more)
	return nil
}

// othersLocked returns how many buffers of another size are in use.
func (r *receiver) othersLocked() (n int) {
	for _, p := range r.pools {
		if p.size != r.size {
			n += p.in
		}
	}
	return n
}

// trimLocked gives back the pools that are not in use, except those that are needed for as many
// buffers as there shall be.
func (r *receiver) trimLocked() {
	r.pools = slices.DeleteFunc(r.pools, func(p *pool) bool {
		if p.in > 0 || p.size == r.size && r.have-p.n < r.count+r.extra() {
			return false
		}
		if p.size == r.size {
			r.have -= p.n
			r.free = slices.DeleteFunc(r.free, func(b *buffer) bool { return b.pool == p })
		}
		p.release()
		return true
	})
}

// oldLocked returns how many buffers are posted up to the last one of another size.
func (r *receiver) oldLocked() (n int) {
	var last uint64
	for _, b := range r.buffers {
		if b != nil && b.pool.size != r.size {
			last = max(last, b.turn)
		}
	}
	for _, b := range r.buffers {
		if b != nil && b.turn <= last {
			n++
		}
	}
	return n
}

// slack is how many buffers may be free before they are posted, all at once.
func (r *receiver) slack() int { return max(2, min(mostSlack, r.count/8)) }

// extra is how many buffers there are beyond those that were asked for.
func (r *receiver) extra() int { return reserve + r.slack() }

// missingLocked returns how many buffers should be posted.
func (r *receiver) missingLocked() int { return max(0, r.count+r.extra()-r.posted-r.lent) }

// postLocked posts buffers until there are enough.
func (r *receiver) postLocked() {
	for n := 0; ; {
		if len(r.free) == 0 && r.missingLocked() > 0 { // buffers of another size were used up
			if err := r.addPoolLocked(max(r.missingLocked(), r.slack()), r.size, needed); err != nil {
				r.q.refused(err)
				return
			}
		}
		more := r.missingLocked() > 0 && len(r.free) > 0
		if n > 0 && (!more || n == len(r.work)) {
			if errno := C.v_post_recv(r.q.end, &r.work[0], C.int(n)); errno != 0 {
				r.q.refused(whyPost(n*r.size, errno))
				return
			}
			n = 0
		}
		if !more {
			return
		}
		last := len(r.free) - 1
		b := r.free[last]
		r.free = r.free[:last]
		b.pool.in++
		r.posted++
		r.turn++
		b.turn = r.turn
		if k := len(r.spare); k > 0 {
			b.number, r.spare = r.spare[k-1], r.spare[:k-1]
			r.buffers[b.number] = b
		} else {
			b.number = uint32(len(r.buffers))
			r.buffers = append(r.buffers, b)
		}
		r.work[n] = C.struct_v_recv{
			wr_id: C.uint64_t(received | uint64(b.number)),
			addr:  C.uint64_t(addressOf(b.mem)),
			len:   C.uint32_t(len(b.mem)),
			lkey:  b.pool.mr.lkey,
		}
		n++
	}
}

// filled takes a buffer that the device has filled, and reports whether it belongs to the reserve.
func (r *receiver) filled(number uint32) (b *buffer, reserved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b = r.buffers[number]
	r.buffers[number] = nil
	r.spare = append(r.spare, number)
	r.posted--
	r.lent++
	return b, r.posted+r.missingLocked() < r.extra()
}

// Release returns a buffer.
func (b *buffer) Release() {
	r := &b.q.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	wire.Release()
	r.dropLocked(b)
	if !r.closed && r.missingLocked() >= r.slack() {
		r.postLocked()
	}
}

// dropLocked takes back a buffer that was lent.
func (r *receiver) dropLocked(b *buffer) {
	r.lent--
	p := b.pool
	p.in--
	switch {
	case r.closed:
		p.release()
	case p.size == r.size:
		r.free = append(r.free, b)
	case p.in == 0:
		r.trimLocked()
	}
}

// closeLocked takes the memory from the device, which must have ended the queue pair. Lent buffers
// remain until they are released.
func (r *receiver) closeLocked() {
	r.closed = true
	for _, b := range r.buffers {
		if b == nil {
			continue
		}
		b.pool.in-- // it was posted and will never be filled
	}
	r.buffers, r.free = nil, nil
	for _, p := range r.pools {
		p.deregister()
		p.release()
	}
	r.pools = nil
}

// addressOf returns the address of b, for the device.
func addressOf(b []byte) C.uintptr_t {
	return C.uintptr_t(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
