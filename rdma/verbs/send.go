//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gosdp/gosdp/rdma"
)

// sender is the send queue. Work requests in it are numbered and complete in order; a completion
// stands for all work before it. Long messages are copied to the ring. Short ones are copied to a
// slot, from which the device takes them inline if it can.
type sender struct {
	mu         sync.Mutex
	ring       ring
	slots      []byte // for short messages: of work, or of the whole queue if slotsMR is not nil
	slotsMR    *C.struct_v_mr
	work       [32]C.struct_v_send // work that was not handed to the device yet
	n          int
	ends       int    // empty messages sent to end the channel
	confirming bool   // the Read of Drain is posted; only the caller of Drain looks
	quiet      int    // work requests since the last that asked for a completion
	quietLen   int    // and bytes of the ring in them
	payloads   uint64 // messages with payload so far
	bounce     bounce

	posted  atomic.Uint64 // the number of the next work request
	tail    atomic.Uint64 // and of the oldest that has not completed
	paid    atomic.Uint64 // how many of payloads have completed
	reads   atomic.Int32  // that Poll has not returned
	writes  atomic.Int32
	busy    atomic.Bool
	starved atomic.Bool // upkeep had no room; while chores is set, Wait would not park
	records [sendDepth]record
	upTo    uint64 // work before this number has completed, except Reads; reapMu guards it
}

// record is what to do when a work request has completed.
type record struct {
	op       rdma.Op // OpReceive: a message
	id       uint64
	payloads uint64
	ringHead uint64
	reg      *registration // of the program's memory
	done     bool          // its own completion has arrived
	local    []byte
}

const (
	slotSize     = mostInline
	mostPayloads = 64
	mostWrites   = 32
	keptBack     = mostReads + mostWrites + 8 // of the send queue; messages may not use it
	quietMost    = 16
	quietShare   = 8 // of the ring: a completion is asked for at least for each such part
	// referenced is the length from which siw sends pages by reference and not a copy, unless the
	// work asks for a completion: TCP still uses the pages when the completion of later work says
	// that they are free. It is the smallest page size of a kernel.
	referenced = 4096
)

func (tx *sender) open(q *QueuePair) error {
	if err := tx.ring.replace(q.end.pd, leastRing, opening, 0); err != nil {
		return err
	}
	if int(q.end.max_inline) >= slotSize { // the device takes short messages at once
		tx.slots = make([]byte, len(tx.work)*slotSize)
		return nil
	}
	mem, err := buffers.get(sendDepth*slotSize, opening)
	if err != nil {
		return err
	}
	tx.slots = mem
	tx.slotsMR, err = registerMemory(q.end.pd, tx.slots, 0)
	return err
}

// closeLocked frees what the device no longer uses.
func (tx *sender) closeLocked() {
	for i := tx.tail.Load(); i < tx.posted.Load(); i++ {
		if r := &tx.records[i%sendDepth]; r.reg != nil {
			_ = r.reg.put() // the queue pair is destroyed
		}
	}
	tx.records = [sendDepth]record{}
	tx.ring.close()
	if tx.slotsMR != nil {
		_ = deregister(tx.slotsMR)
	}
	if len(tx.slots) > len(tx.work)*slotSize {
		buffers.put(tx.slots)
	}
	tx.slots, tx.slotsMR = nil, nil
}

// sendError returns why nothing can be sent, or nil.
func (q *QueuePair) sendError() error {
	switch {
	case q.err.Load() != nil:
		return q.failed()
	case q.closing.Load():
		return net.ErrClosed
	case q.gone.Load():
		return os.NewSyscallError("write", syscall.EPIPE)
	}
	return nil
}

// PostSend posts messages; see rdma.QueuePair.
func (q *QueuePair) PostSend(wrs []rdma.SendWR) (n int, err error) {
	tx := &q.tx
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := q.sendError(); err != nil {
		return 0, err
	}
	wire.Release()
	for n < len(wrs) && err == nil {
		var took bool
		if took, err = q.copyMessageLocked(&wrs[n]); !took {
			break
		}
		n++
	}
	if failed := q.handLocked(); failed != nil {
		return n, failed
	}
	return n, err
}

// copyMessageLocked copies a message to where the device takes it from, and posts it. It returns false
// if there is no room.
func (q *QueuePair) copyMessageLocked(wr *rdma.SendWR) (bool, error) {
	tx := &q.tx
	size := len(wr.Header) + len(wr.Payload)
	switch {
	case wr.Invalidate != 0:
		return false, errors.New("verbs: Send with Invalidate is not supported")
	case size > maxMessage:
		return false, fmt.Errorf("verbs: message of %d bytes exceeds the maximum of %d", size, maxMessage)
	}
	payload := len(wr.Payload) > 0
	if tx.ring.cut.CompareAndSwap(true, false) {
		tx.ring.grow(q.end.pd, size, tx.posted.Load())
	}
	if !tx.roomFor(size, payload) && !q.growLocked(size) {
		// The completions that make room may have arrived.
		if err := q.handLocked(); err != nil {
			return false, err
		}
		tx.busy.Store(true)
		q.reap()
		if !tx.roomFor(size, payload) {
			if payload {
				return false, nil
			}
			return false, rdma.ErrNoRoom
		}
	}
	mem, lkey := tx.take(size)
	copy(mem, wr.Header)
	copy(mem[len(wr.Header):], wr.Payload)
	if payload {
		tx.payloads++
	}
	w := C.struct_v_send{
		addr:   C.uint64_t(addressOf(mem)),
		len:    C.uint32_t(size),
		lkey:   lkey,
		opcode: C.V_WR_SEND,
	}
	if size <= int(q.end.max_inline) {
		w.flags = C.V_SEND_INLINE
	}
	if wr.Solicited {
		w.flags |= C.V_SEND_SOLICITED
	}
	return true, q.addLocked(w, record{}, false)
}

// take returns memory for size bytes of the next work request. There must be room.
func (tx *sender) take(size int) ([]byte, C.uint32_t) {
	switch {
	case size > slotSize:
		at, taken := tx.ring.take(size)
		tx.quietLen += taken
		return tx.ring.mem[at:], tx.ring.mr.lkey
	case tx.slotsMR == nil:
		return tx.slots[tx.n*slotSize:], 0
	}
	return tx.slots[int(tx.posted.Load()%sendDepth)*slotSize:], tx.slotsMR.lkey
}

// roomFor reports whether a message fits now. A busy device accepts none with payload.
func (tx *sender) roomFor(size int, payload bool) bool {
	used := tx.posted.Load() - tx.tail.Load()
	switch {
	case used >= sendDepth-keptBack:
		return false
	case payload && (tx.busy.Load() || tx.payloads-tx.paid.Load() >= mostPayloads):
		return false
	}
	return size <= slotSize || tx.ring.fits(size)
}

// growLocked makes the ring larger if only that prevents a message from being sent, and reports
// whether there is room now.
func (q *QueuePair) growLocked(size int) bool {
	tx := &q.tx
	if tx.busy.Load() || size <= slotSize || tx.ring.fits(size) {
		return false
	}
	return tx.ring.grow(q.end.pd, size, tx.posted.Load()) && tx.roomFor(size, true)
}

// Width cuts messages so that at least two fit into the ring; see rdma.QueuePair. The next message makes
// the ring larger, unless there is no memory for that.
func (q *QueuePair) Width(n int) int {
	most := int(q.tx.ring.size.Load()) / 2
	if n <= most || most == 0 {
		return n
	}
	q.tx.ring.cut.Store(true)
	return most
}

// shrinkLocked makes the ring small again. An RDMA Write of no bytes, which needs no memory and no
// receive buffer of the peer, completes the messages that have not asked for a completion.
func (q *QueuePair) shrinkLocked() error {
	tx := &q.tx
	if len(tx.ring.mem) <= leastRing || q.sendError() != nil || tx.ends > 0 {
		return nil
	}
	if err := tx.ring.replace(q.end.pd, leastRing, needed, tx.posted.Load()); err != nil {
		return err
	}
	if tx.tail.Load() < tx.posted.Load() && tx.roomFor(0, false) {
		if err := q.addLocked(C.struct_v_send{opcode: C.V_WR_RDMA_WRITE}, record{}, true); err != nil {
			return err
		}
	}
	tx.ring.retired.free(tx.tail.Load())
	return q.handLocked()
}

func rounded(size int) int { return (size + 63) &^ 63 }

// addLocked numbers a work request, which the next handLocked hands to the device.
func (q *QueuePair) addLocked(w C.struct_v_send, r record, tell bool) error {
	tx := &q.tx
	number := tx.posted.Load()
	tx.quiet++
	if tell || tx.quiet >= quietMost || tx.quietLen >= len(tx.ring.mem)/quietShare || q.rnic && w.len >= referenced {
		w.flags |= C.V_SEND_SIGNALED
		tx.quiet, tx.quietLen = 0, 0
	}
	w.wr_id = C.uint64_t(number)
	r.payloads, r.ringHead = tx.payloads, tx.ring.head
	tx.records[number%sendDepth] = r
	tx.work[tx.n] = w
	tx.n++
	tx.posted.Store(number + 1)
	if tx.n == len(tx.work) {
		return q.handLocked()
	}
	return nil
}

// handLocked hands the work requests to the device.
func (q *QueuePair) handLocked() error {
	tx := &q.tx
	if tx.n == 0 {
		return nil
	}
	errno := C.v_post_send(q.end, &tx.work[0], C.int(tx.n))
	tx.n = 0
	if errno != 0 {
		q.reap() // what had arrived before, and perhaps why
		q.fail(fmt.Errorf("verbs: post work request: %w", syscall.Errno(errno)))
		return q.failed()
	}
	return nil
}

// sendEnd sends empty messages until want of them have been sent to end the channel.
func (q *QueuePair) sendEnd(want int) error {
	tx := &q.tx
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := q.sendError(); err != nil {
		return err
	}
	for ; tx.ends < want; tx.ends++ {
		if err := q.addLocked(C.struct_v_send{opcode: C.V_WR_SEND, flags: C.V_SEND_SOLICITED}, record{}, true); err != nil {
			return err
		}
	}
	return q.handLocked()
}

// confirm makes the peer's device say that it has everything: the device answers an RDMA Read of zero
// bytes, which needs no memory, in its turn.
func (q *QueuePair) confirm() error {
	q.tx.mu.Lock()
	defer q.tx.mu.Unlock()
	if err := q.addLocked(C.struct_v_send{opcode: C.V_WR_RDMA_READ}, record{}, true); err != nil {
		return err
	}
	return q.handLocked()
}

// sendEmpty sends an empty message.
func (q *QueuePair) sendEmpty() error {
	q.tx.mu.Lock()
	defer q.tx.mu.Unlock()
	if err := q.addLocked(C.struct_v_send{opcode: C.V_WR_SEND, flags: C.V_SEND_SOLICITED}, record{}, true); err != nil {
		return err
	}
	return q.handLocked()
}

// PostRead posts an RDMA Read; see rdma.QueuePair.
func (q *QueuePair) PostRead(wr rdma.ReadWR) error {
	u := sink
	if q.rnic {
		u = exposed
	}
	return q.postRDMA(rdmaWork{C.V_WR_RDMA_READ, rdma.OpRead, wr.ID, wr.Local, wr.STag, wr.VA}, u, &q.tx.reads, q.ord)
}

// PostWrite posts an RDMA Write; see rdma.QueuePair.
func (q *QueuePair) PostWrite(wr rdma.WriteWR) error {
	return q.postRDMA(rdmaWork{C.V_WR_RDMA_WRITE, rdma.OpWrite, wr.ID, wr.Local, wr.STag, wr.VA}, source, &q.tx.writes, mostWrites)
}

// rdmaWork is an RDMA Read or Write.
type rdmaWork struct {
	opcode C.uint16_t
	op     rdma.Op
	id     uint64
	local  []byte
	stag   rdma.STag
	va     uint64
}

func (q *QueuePair) postRDMA(t rdmaWork, u use, under *atomic.Int32, most int) error {
	tx := &q.tx
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := q.sendError(); err != nil {
		return err
	}
	if int(under.Load()) >= most {
		return rdma.ErrNoRoom
	}
	r := record{op: t.op, id: t.id, local: t.local}
	var lkey C.uint32_t
	if len(t.local) > 0 { // otherwise there is no memory to register
		var err error
		r.reg, err = q.kept.get(t.local, u)
		switch {
		case err == nil:
			lkey = r.reg.lkey()
			if t.op == rdma.OpWrite {
				tx.bounce = bounce{} // the Write may have begun that way
			}
		case t.op == rdma.OpWrite:
			under.Add(1)
			wire.Release()
			err := q.copyViaRingLocked(rdma.WriteWR{ID: t.id, Local: t.local, STag: t.stag, VA: t.va})
			if err != nil {
				under.Add(-1)
			}
			return err
		default:
			// Memory that cannot be locked, or not by a device, is sent through the receive
			// buffers: SDP declines an advertisement if there is no room.
			return rdma.ErrNoRoom
		}
	}
	under.Add(1)
	wire.Release()
	w := C.struct_v_send{
		addr:   C.uint64_t(addressOf(t.local)),
		len:    C.uint32_t(len(t.local)),
		lkey:   lkey,
		remote: C.uint64_t(t.va),
		rkey:   C.uint32_t(t.stag),
		opcode: t.opcode,
	}
	if err := q.addLocked(w, r, true); err != nil {
		return err
	}
	return q.handLocked()
}

// Busy reports whether a message with payload would be refused.
func (q *QueuePair) Busy() bool {
	if !q.tx.busy.Load() {
		return false
	}
	q.reap()
	return q.tx.busy.Load()
}

// Flush has nothing to do: the device sends by itself what it has accepted.
func (q *QueuePair) Flush() {}
