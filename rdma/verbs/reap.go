//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"unsafe"

	"github.com/gosdp/gosdp/rdma"
)

// received marks the number of a receive buffer among the numbers of work requests.
const received = 1 << 63

// reap takes the completions that are there. Any goroutine that needs one of them may call it; those
// for other goroutines are kept, and these are woken.
func (q *QueuePair) reap() {
	q.lockReap()
	q.reapLocked()
	q.reapMu.Unlock()
}

// lockReap locks reapMu, which a goroutine that polls gives up for it.
func (q *QueuePair) lockReap() {
	if q.reapMu.TryLock() {
		return
	}
	q.wanted.Add(1)
	q.stop.Store(1)
	q.reapMu.Lock()
	q.wanted.Add(-1)
}

func (q *QueuePair) reapLocked() { q.reapForLocked(0) }

// reapForLocked takes the completions that are there; if there are none, it looks this many times.
// The caller must hold reapMu.
func (q *QueuePair) reapForLocked(looks int) {
	if q.end.cq == nil {
		return
	}
	wire.Acquire()
	had := q.ready.len()
	for {
		var n int
		if looks > 0 {
			n = int(C.v_spin(q.end, &q.wcs[0], C.int(len(q.wcs)), C.int(looks), (*C.int32_t)(unsafe.Pointer(&q.stop))))
			looks = 0
			wire.Acquire()
		} else {
			n = int(C.v_poll(q.end, &q.wcs[0], C.int(len(q.wcs))))
		}
		for i := range max(n, 0) {
			q.completedLocked(&q.wcs[i])
		}
		q.reaped += uint32(max(n, 0))
		if n < 0 {
			q.fail(fmt.Errorf("verbs: poll completion queue: error %d", -n))
		}
		if n < len(q.wcs) {
			break
		}
	}
	if had == 0 && q.ready.len() > 0 {
		q.in.kick()
	}
	if q.flushed && q.err.Load() == nil {
		if why := q.reasonLocked(); why != nil {
			q.fail(why)
		}
	}
	if why := q.refusal.Load(); why != nil && !q.flushed && q.err.Load() == nil {
		q.fail(why.error)
	}
	q.relieve()
}

// completedLocked handles one completion. The caller must hold reapMu.
func (q *QueuePair) completedLocked(wc *C.struct_v_wc) {
	number := uint64(wc.wr_id)
	if wc.status != C.V_WC_SUCCESS {
		q.flushed = true
		if wc.status != C.V_WC_WR_FLUSH_ERR && q.cause == nil {
			q.cause = q.whyFailed(int(wc.status), number&received != 0)
		}
		return
	}
	if number&received == 0 {
		q.sentLocked(number)
		return
	}
	b, reserved := q.rx.filled(uint32(number))
	switch {
	case wc.opcode != C.V_WC_RECV || int(wc.byte_len) > len(b.mem):
		// An RDMA Write with Immediate takes a receive buffer and puts nothing into it, and the
		// length is that of the Write. Sends of every kind are V_WC_RECV.
		b.Release()
		q.fail(violation("docs/protocol.md, verbs", "receive buffer consumed by an operation other than Send"))
	case wc.byte_len == 0:
		b.Release()
		if q.empties++; q.empties >= q.emptiesAtEnd() {
			q.fail(io.EOF)
		}
	case isOwn(b.mem[:wc.byte_len]):
		ask := string(b.mem[:ownLen]) == askText
		b.Release()
		if err := q.heard(ask); err != nil {
			q.fail(err)
		}
	case reserved:
		b.Release()
		q.fail(violation("InfiniBand §9.7.7.1.2", "message without a posted receive buffer"))
	case q.err.Load() != nil:
		b.Release()
	default:
		q.ready.push(rdma.Completion{Op: rdma.OpReceive, Buffer: rdma.Buffer{Bytes: b.mem[:wc.byte_len], Owner: b}})
	}
}

// sentLocked handles the completion of the work with this number and of the work before it. An RDMA
// Read needs a completion of its own, because siw does not keep it in order with what follows. The
// caller must hold reapMu.
func (q *QueuePair) sentLocked(number uint64) {
	tx := &q.tx
	_ = tx.posted.Load() // which the sender stored after the records
	tx.records[number%sendDepth].done = true
	tx.upTo = max(tx.upTo, number+1)
	i := tx.tail.Load()
	for ; i < tx.upTo; i++ {
		r := &tx.records[i%sendDepth]
		if r.op == rdma.OpRead && !r.done {
			break
		}
		tx.paid.Store(r.payloads)
		tx.ring.tail.Store(r.ringHead)
		if r.op == rdma.OpReceive {
			continue
		}
		if r.reg != nil {
			if err := r.reg.put(); err != nil {
				q.fail(err) // so that the peer has no access to it
			}
		}
		q.ready.push(rdma.Completion{Op: r.op, ID: r.id})
		r.reg, r.local = nil, nil
	}
	tx.tail.Store(i)
	if tx.starved.Load() {
		tx.starved.Store(false)
		q.chores.Store(true)
		q.in.kick()
	}
	tx.ring.retired.free(i)
}

// relieve ends the busy state when half of everything is free.
func (q *QueuePair) relieve() {
	tx := &q.tx
	if !tx.busy.Load() {
		return
	}
	last := tx.posted.Load()
	if last-tx.tail.Load() > sendDepth/2 {
		return
	}
	if last > 0 {
		r := &tx.records[(last-1)%sendDepth]
		if r.payloads-tx.paid.Load() > mostPayloads/2 || r.ringHead-tx.ring.tail.Load() > uint64(tx.ring.size.Load())/2 {
			return
		}
	}
	tx.busy.Store(false)
	q.room.kick()
}

// whyFailed returns what a completion with an error means.
func (q *QueuePair) whyFailed(status int, receiving bool) error {
	switch status {
	case C.V_WC_LOC_LEN_ERR, C.V_WC_LOC_QP_OP_ERR: // the second is rxe's
		if receiving {
			return violation("InfiniBand §9.7.7.1.2", "message longer than the receive buffer")
		}
		if q.rnic && status == C.V_WC_LOC_QP_OP_ERR { // siw's socket has been reset
			return os.NewSyscallError("write", syscall.ECONNRESET)
		}
	case C.V_WC_LOC_ACCESS_ERR, C.V_WC_REM_INV_REQ_ERR, C.V_WC_REM_OP_ERR, C.V_WC_LOC_PROT_ERR:
		if receiving {
			return violation("InfiniBand §9.7.5", "access to memory that is not exposed")
		}
		return &rdma.TerminateError{Layer: 0, Type: 2, Code: uint8(status)}
	case C.V_WC_REM_ACCESS_ERR:
		return &rdma.TerminateError{Layer: 0, Type: 1, Code: uint8(status)}
	case C.V_WC_RNR_RETRY_EXC_ERR:
		return &rdma.TerminateError{Layer: 1, Type: 2, Code: uint8(status)}
	case C.V_WC_RETRY_EXC_ERR:
		return os.NewSyscallError("write", syscall.ETIMEDOUT)
	}
	return fmt.Errorf("verbs: work request failed with status %d: %w", status, syscall.ECONNABORTED)
}
