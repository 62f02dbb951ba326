//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"maps"
	"sync"
	"syscall"

	"github.com/gosdp/gosdp/rdma"
)

// mostLocked is how much memory a process keeps registered for later transfers. Connections that are
// idle or closed keep none.
const mostLocked = 256 << 20

var locked = budget{limit: mostLocked}

// registerMemory registers memory of this process with a device. If no more may be locked, kept
// registrations that are not in use make room.
func registerMemory(pd *C.struct_v_pd, b []byte, access C.int) (mr *C.struct_v_mr, err error) {
	err = locked.lock(func() error {
		mr, err = register(pd, b, access)
		return err
	})
	if err != nil {
		return nil, whyLocked(len(b), err)
	}
	return mr, nil
}

// register registers memory, once.
func register(pd *C.struct_v_pd, b []byte, access C.int) (mr *C.struct_v_mr, err error) {
	if errno := C.v_reg_mr(pd, addressOf(b), C.size_t(len(b)), access, &mr); errno != 0 {
		return nil, syscall.Errno(errno)
	}
	pinned.add(deviceOf(mr), int64(mr.length))
	return mr, nil
}

// deregister ends a registration. After an error the device still has the memory, which stays locked
// and counted, and the peer may still access what was exposed to it. If the device is gone, so is the
// registration, and there is no error.
func deregister(mr *C.struct_v_mr) error {
	name, size := deviceOf(mr), int64(mr.length) // mr is freed
	switch errno := syscall.Errno(C.v_dereg_mr(mr)); errno {
	case 0, syscall.EIO, syscall.ENODEV:
		pinned.add(name, -size)
		return nil
	default:
		return fmt.Errorf("verbs: deregister memory: %w", errno)
	}
}

func deviceOf(mr *C.struct_v_mr) string { return C.GoString(&mr.context.device.name[0]) }

// pinned counts what this process has registered, by device.
var pinned pins

type pins struct {
	mu sync.Mutex
	of map[string]int64 // bytes, by the device's name
}

func (p *pins) add(name string, size int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = make(map[string]int64)
	}
	p.of[name] += size
}

// Pinned returns how many bytes are locked in memory for each RDMA device; see rdma.Device.
func (device) Pinned() map[string]int64 {
	pinned.mu.Lock()
	defer pinned.mu.Unlock()
	return maps.Clone(pinned.of)
}

// local registers memory for the cache. It refers to the queue pair's end and not to the queue pair,
// through which memory in use would be reachable and never be freed.
type local struct{ end *C.struct_v_end }

func (l local) register(b []byte, u use) (any, error) {
	access := C.int(0)
	switch u {
	case sink:
		access = C.V_ACCESS_LOCAL_WRITE
	case exposed: // a Read Response is a tagged message, like a Write
		access = C.V_ACCESS_LOCAL_WRITE | C.V_ACCESS_REMOTE_WRITE
	}
	mr, err := register(l.end.pd, b, access)
	if err != nil {
		return nil, err
	}
	return mr, nil
}

func (l local) deregister(mr any) error { return deregister(mr.(*C.struct_v_mr)) }

// lkey identifies the memory in work requests of this end.
func (r *registration) lkey() C.uint32_t { return r.mr.(*C.struct_v_mr).lkey }

// Shrink ends the kept registrations and makes the ring small, on a goroutine of the event loop,
// because the kernel takes its time. The queue pair keeps the event loop as long as it has an end; one that is being closed
// ends its registrations itself.
func (q *QueuePair) Shrink() {
	if !q.using.TryRLock() {
		return
	}
	defer q.using.RUnlock()
	if q.end.cq != nil {
		q.id.e.readers.Go(q.shrink)
	}
}

func (q *QueuePair) shrink() {
	q.using.RLock()
	defer q.using.RUnlock()
	if q.end.cq == nil {
		return
	}
	q.kept.evict()
	q.tx.mu.Lock()
	defer q.tx.mu.Unlock()
	_ = q.shrinkLocked() // if that fails, the ring stays as it is, or the queue pair has ended
}

// copyViaRingLocked makes an RDMA Write from memory that cannot be registered: it copies it to the
// ring, in pieces.
func (q *QueuePair) copyViaRingLocked(wr rdma.WriteWR) error {
	tx := &q.tx
	err := tx.bounce.carry(wr, min(maxMessage, len(tx.ring.mem)/2), q.ringRoomLocked, func(piece rdma.WriteWR, last bool) error {
		mem, lkey := tx.take(len(piece.Local))
		copy(mem, piece.Local)
		w := C.struct_v_send{
			addr:   C.uint64_t(addressOf(mem)),
			len:    C.uint32_t(len(piece.Local)),
			lkey:   lkey,
			remote: C.uint64_t(piece.VA),
			rkey:   C.uint32_t(piece.STag),
			opcode: C.V_WR_RDMA_WRITE,
		}
		if len(piece.Local) <= int(q.end.max_inline) {
			w.flags = C.V_SEND_INLINE
		}
		r := record{}
		if last {
			r = record{op: rdma.OpWrite, id: piece.ID}
		}
		return q.addLocked(w, r, last)
	})
	if failed := q.handLocked(); failed != nil {
		return failed
	}
	return err
}

// ringRoomLocked reports whether size bytes fit into the ring. If not, the device is busy until half
// of the ring is free.
func (q *QueuePair) ringRoomLocked(size int) bool {
	if q.tx.roomFor(size, false) || q.growLocked(size) {
		return true
	}
	if q.handLocked() != nil {
		return false // the caller finds the error
	}
	q.tx.busy.Store(true)
	q.reap() // the completions that make room may have arrived
	return q.tx.roomFor(size, false)
}

// regions is the memory that the peer may access. A registration lives exactly as long as the
// exposure: one that was kept could not be revoked at once.
type regions struct {
	mu sync.Mutex
	of map[rdma.STag]region
}

type region struct {
	mr  *C.struct_v_mr
	mem []byte // keeps the memory alive
}

// Register exposes b to the peer; see rdma.QueuePair.
func (q *QueuePair) Register(b []byte, access rdma.Access) (rdma.Region, error) {
	flags := C.int(0)
	if access&rdma.RemoteRead != 0 {
		flags |= C.V_ACCESS_REMOTE_READ
	}
	if access&rdma.RemoteWrite != 0 {
		flags |= C.V_ACCESS_REMOTE_WRITE | C.V_ACCESS_LOCAL_WRITE
	}
	// This takes milliseconds, during which only the end of the queue pair has to wait.
	q.using.RLock()
	defer q.using.RUnlock()
	if q.end.pd == nil {
		return rdma.Region{}, q.failed()
	}
	wire.Release()
	mr, err := registerMemory(q.end.pd, b, flags)
	if err != nil {
		return rdma.Region{}, err
	}
	stag := rdma.STag(mr.rkey)
	q.regions.mu.Lock()
	defer q.regions.mu.Unlock()
	q.regions.of[stag] = region{mr: mr, mem: b}
	return rdma.Region{STag: stag, VA: uint64(addressOf(b))}, nil
}

// Invalidate ends the exposure; see rdma.QueuePair. If the device does not give back the memory, the
// queue pair has ended when Invalidate returns, so the peer has no access to it either.
func (q *QueuePair) Invalidate(s rdma.STag) {
	if err := q.regions.end(s); err != nil {
		q.fail(err)
	}
	wire.Acquire()
}

// end ends one exposure. After an error it remains until the end of the queue pair.
func (r *regions) end(s rdma.STag) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	region, ok := r.of[s]
	if !ok {
		return nil
	}
	if err := deregister(region.mr); err != nil {
		return err
	}
	delete(r.of, s)
	return nil
}

// closeLocked ends every exposure. The queue pair is destroyed, so the peer has no access even if the
// device does not give back memory.
func (r *regions) closeLocked() {
	for s, region := range r.of {
		delete(r.of, s)
		_ = deregister(region.mr)
	}
}
