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

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
)

// sender is the send queue. Work in it is numbered; it completes in order, and a
// completion that is asked for tells of all before it. Long messages are copied
// to a ring of registered memory, short ones to a slot of their number, from
// which the device takes them inline if it can.
type sender struct {
	mu       sync.Mutex
	mem      []byte // the ring, then the slots
	mr       *C.struct_v_mr
	work     [32]C.struct_v_send // that is not handed to the device yet
	n        int
	said     int    // messages without a byte that end the channel
	fenced   bool   // the Read of Drain is posted; only who drains looks
	quiet    int    // pieces of work since the last that tells of its completion
	quietLen int    // and bytes of the ring in them
	payloads uint64 // messages with payload, ever
	ringHead uint64
	through  through

	posted   atomic.Uint64 // the number of the next piece of work
	tail     atomic.Uint64 // and of the oldest that has not completed
	paid     atomic.Uint64 // of payloads, how many have completed
	ringTail atomic.Uint64
	reads    atomic.Int32 // that Poll has not returned
	writes   atomic.Int32
	busy     atomic.Bool
	records  [sendDepth]record
	upTo     uint64 // what is before this number has completed, but for Reads; reapMu guards it
}

// record is what is to be done when a piece of work has completed.
type record struct {
	op       rdma.Op // OpReceive: a message
	id       uint64
	payloads uint64
	ringHead uint64
	reg      *registration // of the program's memory
	done     bool          // its own completion has come
	local    []byte
}

const (
	ringSize     = 1 << 20
	slotSize     = 128
	mostPayloads = 256
	mostWrites   = 32
	keptBack     = mostReads + mostWrites + 8 // of the send queue, from messages
	quietMost    = 16
	quietBytes   = ringSize / 8
	// referenced is from which length on siw sends pages and no copy of them, unless
	// the work tells of its completion: TCP still has them when the completion of
	// later work says that they are free. A kernel's page, the smallest there is.
	referenced = 4096
)

func (tx *sender) open(q *QueuePair) error {
	size := ringSize + sendDepth*slotSize
	var err error
	if tx.mem, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	tx.mr, err = registerMemory(q.end.pd, tx.mem, 0)
	return err
}

// close gives back what the device no longer uses. Called with mu held.
func (tx *sender) close() {
	for i := tx.tail.Load(); i < tx.posted.Load(); i++ {
		if r := &tx.records[i%sendDepth]; r.reg != nil {
			r.reg.put()
		}
	}
	tx.records = [sendDepth]record{}
	if tx.mr != nil {
		C.v_dereg_mr(tx.mr)
	}
	if tx.mem != nil {
		unix.Munmap(tx.mem)
	}
	tx.mr, tx.mem = nil, nil
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
		if took, err = q.place(&wrs[n]); !took {
			break
		}
		n++
	}
	if failed := q.hand(); failed != nil {
		return n, failed
	}
	return n, err
}

// place copies a message to where the device takes it from, and reports whether
// there was room. Called with tx.mu held.
func (q *QueuePair) place(wr *rdma.SendWR) (bool, error) {
	tx := &q.tx
	size := len(wr.Header) + len(wr.Payload)
	switch {
	case wr.Invalidate != 0:
		return false, errors.New("verbs: a message cannot invalidate a region of the peer's")
	case size > maxMessage:
		return false, fmt.Errorf("verbs: a message of %d bytes, at most %d fit", size, maxMessage)
	}
	payload := len(wr.Payload) > 0
	if !tx.roomFor(size, payload) {
		// The completions that make room may be here already.
		if err := q.hand(); err != nil {
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
	at := tx.take(size)
	copy(tx.mem[at:], wr.Header)
	copy(tx.mem[at+len(wr.Header):], wr.Payload)
	if payload {
		tx.payloads++
	}
	w := C.struct_v_send{
		addr:   C.uint64_t(addressOf(tx.mem[at:])),
		len:    C.uint32_t(size),
		lkey:   tx.mr.lkey,
		opcode: C.V_WR_SEND,
	}
	if size <= int(q.end.max_inline) {
		w.flags = C.V_SEND_INLINE
	}
	if wr.Solicited {
		w.flags |= C.V_SEND_SOLICITED
	}
	return true, q.add(w, record{}, false)
}

// take returns where in mem the next piece of work has its bytes, for which there is
// room.
func (tx *sender) take(size int) (at int) {
	if size <= slotSize {
		return ringSize + int(tx.posted.Load()%sendDepth)*slotSize
	}
	skip := tx.skip(size)
	at = int((tx.ringHead + uint64(skip)) % ringSize)
	tx.ringHead += uint64(skip + rounded(size))
	tx.quietLen += skip + rounded(size)
	return at
}

// roomFor reports that a message fits now. A busy device takes none with payload.
func (tx *sender) roomFor(size int, payload bool) bool {
	used := tx.posted.Load() - tx.tail.Load()
	switch {
	case used >= sendDepth-keptBack:
		return false
	case payload && (tx.busy.Load() || tx.payloads-tx.paid.Load() >= mostPayloads):
		return false
	case size > slotSize:
		return tx.ringHead+uint64(tx.skip(size)+rounded(size))-tx.ringTail.Load() <= ringSize
	}
	return true
}

// skip is how much of the ring's end a message of that size does not fit.
func (tx *sender) skip(size int) int {
	if at := int(tx.ringHead % ringSize); at+rounded(size) > ringSize {
		return ringSize - at
	}
	return 0
}

func rounded(size int) int { return (size + 63) &^ 63 }

// add numbers a piece of work, which is handed to the device with the next hand.
// Called with tx.mu held.
func (q *QueuePair) add(w C.struct_v_send, r record, tell bool) error {
	tx := &q.tx
	number := tx.posted.Load()
	tx.quiet++
	if tell || tx.quiet >= quietMost || tx.quietLen >= quietBytes || q.rnic && w.len >= referenced {
		w.flags |= C.V_SEND_SIGNALED
		tx.quiet, tx.quietLen = 0, 0
	}
	w.wr_id = C.uint64_t(number)
	r.payloads, r.ringHead = tx.payloads, tx.ringHead
	tx.records[number%sendDepth] = r
	tx.work[tx.n] = w
	tx.n++
	tx.posted.Store(number + 1)
	if tx.n == len(tx.work) {
		return q.hand()
	}
	return nil
}

// hand hands what is placed to the device. Called with tx.mu held.
func (q *QueuePair) hand() error {
	tx := &q.tx
	if tx.n == 0 {
		return nil
	}
	errno := C.v_post_send(q.end, &tx.work[0], C.int(tx.n))
	tx.n = 0
	if errno != 0 {
		err := fmt.Errorf("verbs: the device does not take work: %w", syscall.Errno(errno))
		q.fail(err)
		return q.failed()
	}
	return nil
}

// farewell sends messages without a byte until there were so many.
func (q *QueuePair) farewell(want int) error {
	tx := &q.tx
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := q.sendError(); err != nil {
		return err
	}
	for ; tx.said < want; tx.said++ {
		if err := q.add(C.struct_v_send{opcode: C.V_WR_SEND, flags: C.V_SEND_SOLICITED}, record{}, true); err != nil {
			return err
		}
	}
	return q.hand()
}

// fence has the peer's device say that it has got everything: it answers an RDMA Read of
// nothing, which needs no memory, in its turn.
func (q *QueuePair) fence() error {
	q.tx.mu.Lock()
	defer q.tx.mu.Unlock()
	if err := q.add(C.struct_v_send{opcode: C.V_WR_RDMA_READ}, record{}, true); err != nil {
		return err
	}
	return q.hand()
}

// say sends a message without a byte.
func (q *QueuePair) say() error {
	q.tx.mu.Lock()
	defer q.tx.mu.Unlock()
	if err := q.add(C.struct_v_send{opcode: C.V_WR_SEND, flags: C.V_SEND_SOLICITED}, record{}, true); err != nil {
		return err
	}
	return q.hand()
}

// PostRead posts an RDMA Read; see rdma.QueuePair.
func (q *QueuePair) PostRead(wr rdma.ReadWR) error {
	u := sink
	if q.rnic {
		u = exposed
	}
	return q.transfer(transfer{C.V_WR_RDMA_READ, rdma.OpRead, wr.ID, wr.Local, wr.STag, wr.VA}, u, &q.tx.reads, q.ord)
}

// PostWrite posts an RDMA Write; see rdma.QueuePair.
func (q *QueuePair) PostWrite(wr rdma.WriteWR) error {
	return q.transfer(transfer{C.V_WR_RDMA_WRITE, rdma.OpWrite, wr.ID, wr.Local, wr.STag, wr.VA}, source, &q.tx.writes, mostWrites)
}

// transfer is an RDMA Read or Write.
type transfer struct {
	opcode C.uint16_t
	op     rdma.Op
	id     uint64
	local  []byte
	stag   rdma.STag
	va     uint64
}

func (q *QueuePair) transfer(t transfer, u use, under *atomic.Int32, most int) error {
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
	if len(t.local) > 0 { // else there is no memory to register
		var err error
		r.reg, err = q.kept.get(t.local, u)
		switch {
		case err == nil:
			lkey = r.reg.lkey()
			if t.op == rdma.OpWrite {
				tx.through = through{} // it may have begun that way
			}
		case t.op == rdma.OpWrite:
			under.Add(1)
			wire.Release()
			err := q.copyThrough(rdma.WriteWR{ID: t.id, Local: t.local, STag: t.stag, VA: t.va})
			if err != nil {
				under.Add(-1)
			}
			return err
		default:
			// What cannot be locked, or not by a device, is sent through the receive
			// buffers: SDP declines an advertisement for which there is no room.
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
	if err := q.add(w, r, true); err != nil {
		return err
	}
	return q.hand()
}

// Busy reports that a message with payload would be refused.
func (q *QueuePair) Busy() bool {
	if !q.tx.busy.Load() {
		return false
	}
	q.reap()
	return q.tx.busy.Load()
}

// Flush has nothing to do: the device carries what it has taken.
func (q *QueuePair) Flush() {}
