//go:build linux

package shm

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/internal/rnic"
)

// RDMA Reads and Writes. The receiver of the bytes fetches them with process_vm_readv, so only a
// process itself writes its memory.
//
// A Read of this end: a Read Request goes to the peer, which looks up the STag in its own table,
// sets the slot's word granted to the Read's number, and answers with the address (recordGrant).
// The polling goroutine here fetches segment by segment: it sets the slot's word pulling, checks
// that the grant stands, copies, and checks again. When the peer invalidates the region it
// withdraws the grant, and waits for the current segment.
//
// A Write of this end: a request goes to the peer, which looks into its table and fetches from
// this end's memory. It counts completed Writes in the word written.

// segment is how much is moved at once.
const segment = 256 << 10

// pullMost is how much one Poll moves before it handles other things.
const pullMost = 4 << 20

// revokePatience is how long Invalidate and Close wait for a peer that is fetching a segment. A
// process that was stopped may take forever, and will discard what it fetched.
const revokePatience = 200 * time.Millisecond

// errBufferedOnly means that the other end's memory is out of reach.
var errBufferedOnly = errors.New("shm: RDMA not available: cannot read the peer's memory")

// pull is an RDMA Write of the peer that this end is carrying out.
type pull struct {
	active bool
	reg    *rnic.Region
	to     uint64 // offset in it
	from   uint64 // the peer's address
	left   int
}

// requests are the RDMA Reads and Writes of this end. They are made with the first one, because
// most connections have none.
type requests struct {
	reads   rnic.Reads[reading]
	slots   atomic.Uint64  // slots in use, a bit each
	number  uint32         // of the last Read; guarded by the sender's mutex
	ready   bool           // the oldest Read is granted; the polling goroutine's
	refused bool           // the kernel has refused a Read, and no other is tried; likewise
	writes  []rdma.WriteWR // outstanding; guarded by the sender's mutex
}

// reading is an RDMA Read of this end.
type reading struct {
	id      uint64
	local   []byte
	slot    int
	number  uint32
	granted bool
	ended   bool // it was granted, and the peer has withdrawn the grant
	from    uint64
	got     int
}

// exposures are the granted Reads of the peer.
type exposures struct {
	mu     sync.Mutex
	closed bool
	slots  *[maxReads]exposure // nil until the first Read
}

type exposure struct {
	number  uint32 // 0: the slot is free
	tag     rdma.STag
	revoked bool
}

const (
	writeLen   = 32
	readLen    = 32
	grantLen   = 16
	refetchLen = 8
)

var native = binary.NativeEndian

// PostWrite posts an RDMA Write; see rdma.QueuePair.
func (q *QueuePair) PostWrite(wr rdma.WriteWR) error {
	tx := &q.tx
	tx.Lock()
	defer tx.Unlock()
	switch {
	case tx.Err != nil:
		return tx.Err
	case q.peerPID == 0:
		return errBufferedOnly
	}
	r := q.requestsLocked()
	if len(r.writes) >= maxWrites || len(tx.out) > maxQueued {
		return rdma.ErrNoRoom
	}
	var b [writeLen]byte
	native.PutUint32(b[0:], uint32(wr.STag))
	native.PutUint64(b[8:], wr.VA)
	native.PutUint64(b[16:], uint64(len(wr.Local)))
	native.PutUint64(b[24:], addressOf(wr.Local))
	r.writes = append(r.writes, wr)
	tx.writesPosted++
	q.emitLocked(recordWrite, b[:])
	return tx.Err
}

// PostRead posts an RDMA Read; see rdma.QueuePair.
func (q *QueuePair) PostRead(wr rdma.ReadWR) error {
	tx := &q.tx
	tx.Lock()
	defer tx.Unlock()
	switch {
	case tx.Err != nil:
		return tx.Err
	case q.peerPID == 0:
		return errBufferedOnly
	case len(tx.out) > maxQueued:
		return rdma.ErrNoRoom
	}
	r := q.requestsLocked().addReadLocked(wr, int(q.ord))
	if r == nil {
		return rdma.ErrNoRoom
	}
	var b [readLen]byte
	native.PutUint32(b[0:], uint32(r.slot))
	native.PutUint32(b[4:], r.number)
	native.PutUint32(b[8:], uint32(wr.STag))
	native.PutUint64(b[16:], wr.VA)
	native.PutUint64(b[24:], uint64(len(wr.Local)))
	q.emitLocked(recordRead, b[:])
	return tx.Err
}

// requestsLocked returns the requests of this end.
func (q *QueuePair) requestsLocked() *requests {
	r := q.asked.Load()
	if r == nil {
		r = new(requests)
		q.asked.Store(r)
	}
	return r
}

// granted reports whether the oldest Read of this end may proceed. The polling goroutine calls it.
func (q *QueuePair) granted() bool {
	r := q.asked.Load()
	return r != nil && r.ready
}

// addReadLocked appends a Read. It returns nil if limit Reads are outstanding.
func (t *requests) addReadLocked(wr rdma.ReadWR, limit int) *reading {
	number := t.number + 1
	if number == 0 {
		number++
	}
	slot := bits.TrailingZeros64(^t.slots.Load())
	if slot == maxReads { // a Read may end before this one is added: it would get a slot that does not exist
		return nil
	}
	r := &reading{id: wr.ID, local: wr.Local, slot: slot, number: number}
	if !t.reads.Add(r, limit) {
		return nil
	}
	t.number = number
	t.slots.Or(1 << slot)
	return r
}

// popRead takes the oldest Read out. The polling goroutine calls it.
func (t *requests) popRead() {
	t.slots.And(^(1 << t.reads.Oldest().slot))
	t.reads.Pop()
	next := t.reads.Oldest()
	t.ready = next != nil && next.granted
}

// receiveRead checks an RDMA Read of the peer and grants it.
func (q *QueuePair) receiveRead(r record) error {
	if r.length != readLen {
		return violation("record", "a Read Request of %d bytes", r.length)
	}
	var b [readLen]byte
	q.rx.in.body(b[:], 0)
	slot, number := native.Uint32(b[0:]), native.Uint32(b[4:])
	tag, va, n := rdma.STag(native.Uint32(b[8:])), native.Uint64(b[16:]), native.Uint64(b[24:])
	switch {
	case q.peerPID == 0:
		return violation("read", "RDMA Read on a channel without RDMA")
	case slot >= maxReads || number == 0:
		return violation("read", "a Read in slot %d with number %d", slot, number)
	}
	address, err := q.expose(slot, number, tag, va, n)
	if err != nil {
		return err
	}
	var g [grantLen]byte
	native.PutUint32(g[0:], slot)
	native.PutUint32(g[4:], number)
	native.PutUint64(g[8:], address)
	q.tx.Lock()
	if q.emitLocked(recordGrant, g[:]) {
		q.tx.owed.Or(1 << slot)
	}
	q.tx.StartPumpLocked((*carrier)(q))
	q.tx.Unlock()
	return nil
}

// expose grants the peer a Read of n bytes at va in a region, and returns their address in this
// process.
func (q *QueuePair) expose(slot, number uint32, tag rdma.STag, va, n uint64) (address uint64, err error) {
	if n == 0 { // it names no region
		return 0, q.exposed.grant(q, int(slot), number, tag)
	}
	reg, err := q.findRegion(tag, va, n, rdma.RemoteRead)
	if err != nil {
		return 0, err
	}
	// The region is held until the grant is entered, where Invalidate finds it.
	mem := reg.Hold(va, int(n))
	if mem == nil {
		return 0, accessDenied(rnic.NotRegistered(tag))
	}
	defer reg.Release()
	return addressOf(mem), q.exposed.grant(q, int(slot), number, tag)
}

// grant allows the peer to fetch for the Read in a slot.
func (e *exposures) grant(q *QueuePair, slot int, number uint32, tag rdma.STag) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return net.ErrClosed
	}
	if e.slots == nil {
		e.slots = new([maxReads]exposure)
	}
	busy := 0
	for i := range e.slots {
		if e.slots[i].number != 0 {
			busy++
		}
	}
	if e.slots[slot].number != 0 || busy >= int(q.ird) {
		return violation("read", "more than %d RDMA Reads outstanding", q.ird)
	}
	e.slots[slot] = exposure{number: number, tag: tag}
	q.theirs().granted[slot].Store(number)
	return nil
}

// receiveRefetched ends a grant. If the grant was withdrawn, the peer has read from an invalidated
// region. If the peer has not received the answer yet, it cannot have used the grant; so at most
// one answer for each slot is queued, however slow the peer is.
func (q *QueuePair) receiveRefetched(r record) error {
	if r.length != refetchLen {
		return violation("record", "the end of a Read in %d bytes", r.length)
	}
	var b [refetchLen]byte
	q.rx.in.body(b[:], 0)
	slot, number := native.Uint32(b[0:]), native.Uint32(b[4:])
	e := &q.exposed
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.slots == nil || slot >= maxReads || number == 0 || e.slots[slot].number != number {
		return violation("read", "the end of a Read in slot %d with number %d, which has not begun", slot, number)
	}
	if q.tx.owed.Load()&(1<<slot) != 0 {
		return violation("read", "the end of a Read in slot %d with number %d, which has not been answered", slot, number)
	}
	revoked := e.slots[slot].revoked
	q.theirs().granted[slot].Store(0)
	e.slots[slot] = exposure{}
	if revoked {
		return violation("access", "a Read of a region that has been invalidated")
	}
	return nil
}

// receiveGrant records where the bytes of a Read of this end are.
func (q *QueuePair) receiveGrant(r record) error {
	if r.length != grantLen {
		return violation("record", "the answer to a Read in %d bytes", r.length)
	}
	var b [grantLen]byte
	q.rx.in.body(b[:], 0)
	slot, number, from := native.Uint32(b[0:]), native.Uint32(b[4:]), native.Uint64(b[8:])
	if asked := q.asked.Load(); asked != nil && asked.grant(slot, number, from) {
		return nil
	}
	return violation("read", "an answer to a Read in slot %d with number %d, which waits for none", slot, number)
}

// grant records where the bytes of a Read are, and reports whether the Read waits for this.
func (t *requests) grant(slot, number uint32, from uint64) bool {
	r := t.reads.Find(func(r *reading) bool {
		return r.slot == int(slot) && r.number == number && !r.granted && !r.ended
	})
	if r == nil {
		return false
	}
	r.granted, r.from = true, from
	t.ready = t.reads.Oldest().granted
	return true
}

// progress moves the Reads of this end on, and completes its Writes.
func (q *QueuePair) progress() error {
	rx := &q.rx
	if written := q.mine().written.Load(); written != rx.writesDone {
		if err := q.reapWrites(written); err != nil {
			return err
		}
	}
	for moved := 0; q.granted() && rx.used < len(rx.out) && moved < pullMost; {
		asked := q.asked.Load()
		r := asked.reads.Oldest()
		n, err := q.pullRead(r)
		if _, ok := err.(*refusedError); ok {
			asked.refused = true
		} else if err != nil {
			return err
		}
		if moved += n; r.got < len(r.local) && !asked.refused {
			continue
		}
		q.refetched(r) // before the slot can be used again
		asked.popRead()
		rx.out[rx.used] = rdma.Completion{Op: rdma.OpRead, ID: r.id, Failed: asked.refused}
		rx.used++
	}
	return nil
}

// reapWrites completes Writes of this end, after the peer said that it has carried out written of
// them.
func (q *QueuePair) reapWrites(written uint32) error {
	rx, tx := &q.rx, &q.tx
	tx.Lock()
	defer tx.Unlock()
	if tx.Err != nil {
		rx.writesDone = written // or hasWork would call for this again, whatever the peer's state becomes
		return nil              // poll finds the end
	}
	r := q.requestsLocked()
	if n := written - rx.writesDone; uint64(n) > uint64(len(r.writes)) {
		return violation("write", "it has carried out %d RDMA Writes of %d", n, len(r.writes))
	}
	for rx.writesDone != written && rx.used < len(rx.out) {
		rx.out[rx.used] = rdma.Completion{Op: rdma.OpWrite, ID: r.writes[0].ID}
		rx.used++
		rx.writesDone++
		r.writes[0] = rdma.WriteWR{}
		if r.writes = r.writes[1:]; len(r.writes) == 0 {
			r.writes = nil
		}
	}
	return nil
}

// refetched tells the peer that a Read no longer needs its memory.
func (q *QueuePair) refetched(r *reading) {
	var b [refetchLen]byte
	native.PutUint32(b[0:], uint32(r.slot))
	native.PutUint32(b[4:], r.number)
	q.tx.Lock()
	q.emitLocked(recordRefetched, b[:])
	q.tx.StartPumpLocked((*carrier)(q))
	q.tx.Unlock()
}

// pullRead moves a segment of a Read of this end, and returns its length.
func (q *QueuePair) pullRead(r *reading) (int, error) {
	d := q.mine()
	n := min(segment, len(r.local)-r.got)
	if n == 0 || q.asked.Load().refused {
		return 0, nil
	}
	granted, pulling := &d.granted[r.slot], &d.pulling[r.slot]
	pulling.Store(r.number)
	var err error
	if granted.Load() == r.number {
		err = q.fetch(r.local[r.got:r.got+n], r.from+uint64(r.got))
	}
	stands := granted.Load() == r.number
	pulling.Store(0)
	switch {
	case !stands:
		q.refetched(r) // the peer will end the queue pair for this
		r.granted, r.ended = false, true
		q.asked.Load().ready = false
		return 0, nil
	case err != nil:
		return 0, err
	}
	r.got += n
	return n, nil
}

// receiveWrite begins to carry out an RDMA Write of the peer.
func (q *QueuePair) receiveWrite(r record) error {
	if r.length != writeLen {
		return violation("record", "an RDMA Write of %d bytes", r.length)
	}
	var b [writeLen]byte
	q.rx.in.body(b[:], 0)
	tag, va, n, from := rdma.STag(native.Uint32(b[0:])), native.Uint64(b[8:]), native.Uint64(b[16:]), native.Uint64(b[24:])
	if q.peerPID == 0 {
		return violation("write", "RDMA Write on a channel without RDMA")
	}
	w := pull{active: true, to: va, from: from, left: int(n)}
	if n > 0 { // a Write of zero bytes names no region
		reg, err := q.findRegion(tag, va, n, rdma.RemoteWrite)
		if err != nil {
			return err
		}
		w.reg = reg
	}
	if q.rx.write == nil {
		q.rx.write = new(pull)
	}
	*q.rx.write = w
	return nil
}

// pullWrite moves about most bytes of the peer's Write, and returns how many they were.
func (q *QueuePair) pullWrite(most int) (moved int, err error) {
	w := q.rx.write
	for w.left > 0 {
		if moved >= most || q.closing.Load() {
			return moved, nil
		}
		n := min(segment, w.left)
		mem := w.reg.Hold(w.to, n)
		if mem == nil {
			return moved, violation("access", "a Write to a region that has been invalidated")
		}
		err = q.fetch(mem, w.from)
		w.reg.Release()
		if refused, ok := err.(*refusedError); ok {
			err = refused.error // the peer is not told that a single Write has failed
		}
		if err != nil {
			return moved, err
		}
		w.to, w.from, w.left, moved = w.to+uint64(n), w.from+uint64(n), w.left-n, moved+n
	}
	*w = pull{}
	d := q.theirs()
	d.written.Add(1)
	// The peer's poller may sleep, waiting for records of this end.
	if idle := &q.mine().idle; idle.Load() != 0 && idle.Swap(0) != 0 {
		q.bell.ring()
	}
	return moved, nil
}

// fetch copies from the peer's memory. It checks afterwards that the peer still lives, because its
// pid may have been used again.
func (q *QueuePair) fetch(b []byte, from uint64) error {
	for len(b) > 0 {
		local := [1]unix.Iovec{{Base: &b[0]}}
		local[0].SetLen(len(b))
		remote := [1]unix.RemoteIovec{{Base: uintptr(from), Len: len(b)}}
		n, err := unix.ProcessVMReadv(int(q.peerPID), local[:], remote[:], 0)
		switch {
		case err == unix.EINTR:
			continue
		case !q.bell.alive() || q.theirs().state.Load() != stateOpen:
			return q.bell.why()
		case err == unix.ESRCH: // the peer is exiting, which frees the memory before it closes the sockets
			return os.NewSyscallError("process_vm_readv", unix.ECONNRESET)
		case err == unix.EFAULT || err == nil && n == 0:
			return &refusedError{violation("address", "%d bytes at %#x are none that can be read", len(b), from)}
		case err != nil:
			return &refusedError{os.NewSyscallError("process_vm_readv", err)}
		}
		b, from = b[n:], from+uint64(n)
	}
	wire.Acquire()
	return nil
}

// refusedError means that the kernel does not let this end read the peer's memory, or not that
// memory: the peer's process has given up rights since the channel was opened, or this one has
// entered a sandbox, or the memory is secret or a device's. A Read that is refused completes as
// failed, and its bytes can be sent in messages.
type refusedError struct{ error }

// revoke ends the exposure of a region, and reports whether there was one. It waits for the segment
// that is being moved.
func (q *QueuePair) revoke(s rdma.STag) bool {
	if !q.regions.Remove(s) {
		return false
	}
	e := &q.exposed
	e.mu.Lock()
	defer e.mu.Unlock()
	e.withdrawLocked(q, func(x *exposure) bool { return x.tag == s })
	return true
}

// withdrawLocked withdraws the grants that match. It withdraws all before it waits for any, so that
// the peer has the whole time for each.
func (e *exposures) withdrawLocked(q *QueuePair, kind func(*exposure) bool) {
	if e.slots == nil || e.closed {
		return
	}
	d := q.theirs()
	var withdrawn uint64 // a bit for each slot
	for i := range e.slots {
		if x := &e.slots[i]; x.number != 0 && !x.revoked && kind(x) {
			x.revoked = true
			d.granted[i].Store(0)
			withdrawn |= 1 << i
		}
	}
	var until time.Time
	for ; withdrawn != 0; withdrawn &= withdrawn - 1 {
		slot := bits.TrailingZeros64(withdrawn)
		for d.pulling[slot].Load() == e.slots[slot].number {
			if until.IsZero() {
				until = time.Now().Add(revokePatience)
			}
			if !time.Now().Before(until) || !q.bell.alive() {
				return
			}
			runtime.Gosched()
		}
	}
}

// close withdraws every grant, and prevents new ones.
func (e *exposures) close(q *QueuePair) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.withdrawLocked(q, func(*exposure) bool { return true })
	e.closed = true
}

// addressOf returns the address of b, for the other end.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
