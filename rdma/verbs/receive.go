//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

// receiver has the receive buffers. The device fills them in the order in which they were posted, so
// those of a former size are used up first.
type receiver struct {
	q           *QueuePair
	mu          sync.Mutex
	count, size int // that were asked for
	posted      int
	lent        int
	turn        uint64    // of the last posted buffer
	pool        *pool     // from which buffers are posted
	pools       []*pool   // all registered pools, including that one
	buffers     []*buffer // by number, which the device returns
	spare       []uint32  // unused numbers
	work        [64]C.struct_v_recv
	closed      bool
}

// mostPooled is how many bytes the pools of a connection may have. Each change of size makes a new
// one, and a former one remains as long as a message in it is unread, which the peer can cause.
const mostPooled = 64 << 20

// pool is registered memory for buffers of one size. Its memory is freed when none of them is posted
// or lent.
type pool struct {
	mem     []byte
	mr      *C.struct_v_mr
	size    int
	free    []*buffer
	in      int             // buffers in use
	former  bool            // another pool has replaced it
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

func newPool(q *QueuePair, count, size int) (*pool, error) {
	step := rounded(size)
	mem, err := unix.Mmap(-1, 0, count*step, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	p := &pool{mem: mem, size: size, free: make([]*buffer, 0, count)}
	if p.mr, err = registerMemory(q.end.pd, mem, C.V_ACCESS_LOCAL_WRITE); err != nil {
		unix.Munmap(mem)
		return nil, err
	}
	p.cleanup = runtime.AddCleanup(p, func(mem []byte) { unix.Munmap(mem) }, mem)
	for i := range count {
		p.free = append(p.free, &buffer{q: q, pool: p, mem: mem[i*step:][:size:size]})
	}
	return p, nil
}

// deregister takes the memory from the device. release frees it when no buffer is in use.
func (p *pool) deregister() {
	if p.mr != nil {
		C.v_dereg_mr(p.mr)
		p.mr = nil
	}
}

func (p *pool) release() {
	if p.in == 0 && p.former && p.mem != nil {
		p.deregister()
		p.cleanup.Stop()
		unix.Munmap(p.mem)
		p.mem, p.free = nil, nil
	}
}

// ProvideReceive sets how many receive buffers there are; see rdma.QueuePair. There are at most
// Limits.Buffers. It returns MaxInt32 if there is no memory for more, or for larger ones, within
// mostPooled.
func (q *QueuePair) ProvideReceive(count, size int) (old int) {
	q.lockReap()
	defer q.reapMu.Unlock()
	r := &q.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0
	}
	r.count, r.size = min(count, recvDepth-extra), min(size, maxMessage)
	need := r.count + extra
	if r.pool == nil || r.pool.size != r.size || len(r.pool.free)+r.pool.in < need {
		if r.pool != nil && r.pool.size == r.size {
			need = recvDepth // so that there will be no third pool of this size
		}
		p, err := r.newPoolLocked(need)
		switch {
		case err == nil:
		case r.pool == nil:
			q.fail(err)
			return 0
		default:
			// No memory can be locked for larger buffers. The posted ones stay in use, and
			// are never used up.
			r.size = r.pool.size
			r.count = min(r.count, len(r.pool.free)+r.pool.in-extra)
			return math.MaxInt32
		}
		if r.pool != nil {
			r.pool.former = true
			r.pool.release()
		}
		r.pool = p
		r.pools = append(r.pools, p)
	}
	if old = r.oldLocked(); old > 0 {
		for _, c := range q.ready.items[q.ready.head:] { // the caller has not seen these yet
			if c.Op == rdma.OpReceive {
				old++
			}
		}
	}
	r.postLocked()
	return old
}

// newPoolLocked returns a pool of count buffers, if the connection may have them.
func (r *receiver) newPoolLocked(count int) (*pool, error) {
	r.pools = slices.DeleteFunc(r.pools, func(p *pool) bool { return p.mem == nil })
	all := count * rounded(r.size)
	for _, p := range r.pools {
		all += len(p.mem)
	}
	if all > mostPooled {
		return nil, fmt.Errorf("verbs: the receive buffers would have %d bytes", all)
	}
	return newPool(r.q, count, r.size)
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

// missingLocked returns how many buffers should be posted.
func (r *receiver) missingLocked() int { return max(0, r.count+extra-r.posted-r.lent) }

// postLocked posts buffers until there are enough.
func (r *receiver) postLocked() {
	for n := 0; ; {
		more := r.missingLocked() > 0 && len(r.pool.free) > 0
		if n > 0 && (!more || n == len(r.work)) {
			if errno := C.v_post_recv(r.q.end, &r.work[0], C.int(n)); errno != 0 {
				r.q.fail(whyRegister(n*r.size, errno))
				return
			}
			n = 0
		}
		if !more {
			return
		}
		last := len(r.pool.free) - 1
		b := r.pool.free[last]
		r.pool.free = r.pool.free[:last]
		r.pool.in++
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
			lkey:  r.pool.mr.lkey,
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
	return b, r.posted+r.missingLocked() < extra
}

// Release returns a buffer.
func (b *buffer) Release() {
	r := &b.q.rx
	r.mu.Lock()
	defer r.mu.Unlock()
	wire.Release()
	r.dropLocked(b)
	if !r.closed && r.missingLocked() >= slack {
		r.postLocked()
	}
}

// dropLocked takes back a buffer that was lent.
func (r *receiver) dropLocked(b *buffer) {
	r.lent--
	p := b.pool
	p.in--
	if p.former {
		p.release()
	} else {
		p.free = append(p.free, b)
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
	r.buffers = nil
	for _, p := range r.pools {
		p.former = true
		p.deregister()
		p.release()
	}
	r.pools = nil
}

// addressOf returns the address of b, for the device.
func addressOf(b []byte) C.uintptr_t {
	return C.uintptr_t(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
