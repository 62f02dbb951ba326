package rdmatest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

const (
	modelMessage  = 256 << 10
	modelSegment  = 64 << 10
	modelCapacity = 1 << 20 // bytes on the wire in one direction
	modelDepth    = 8       // IRD and ORD
	modelWrites   = 32      // that may be queued
	modelBare     = 1 << 16 // messages that may be queued
)

// model is the plainest device that keeps rdma.QueuePair's contract: both ends
// in one process, under one lock, with no goroutine at all. What is posted goes
// through the queue of the sender, the wire (which holds modelCapacity bytes and
// is carried only when the contract has somebody carry it) and the receiver's
// Poll, so that all of the contract's states occur.
type model struct {
	mu      sync.Mutex
	changed sync.Cond // wakes everyone who waits for anything
	ends    [2]modelEnd
	elastic bool
	fault   fault
	spare   []*parcel // recycled, so that the steady state allocates nothing
}

// modelEnd is one end. All of it is under model.mu.
type modelEnd struct {
	m    *model
	peer *modelEnd

	queue    fifo[*parcel] // messages, Writes and Read Requests not carried yet
	answers  fifo[*parcel] // Read Responses not carried yet
	flushing bool          // Flush was called for what is queued
	carriers int           // calls that carry while they are parked
	writes   int           // queued
	wire     fifo[*parcel] // on the way to this end
	wireSize int

	count, size      int // of receive buffers
	posted, lent     int
	old, oldSize     int // those still posted with another size, which come first
	ready            fifo[rdma.Completion]
	reads            fifo[modelRead]
	regions          map[rdma.STag]modelRegion
	woken, wokenRoom bool
	err, sendErr     error
	closed           bool
	first            []byte // of the fault reusesLent
}

type modelRegion struct {
	mem    []byte
	va     uint64
	access rdma.Access
}

type modelRead struct {
	rdma.ReadWR
	got int
}

// kind is what a parcel is.
type kind uint8

const (
	kindSend kind = iota
	kindWrite
	kindReadRequest
	kindReadResponse
	kindTerminate
	kindEOF
	kindReset
)

// parcel is one job in a queue, and one segment on the wire. A receive buffer is
// the parcel that came.
type parcel struct {
	kind  kind
	bytes []byte // Send: its own copy. On the wire all are copies
	local []byte // Write: what is left of the caller's bytes
	s     rdma.STag
	va    uint64
	size  int // Read Request: bytes wanted. Read Response: bytes left
	id    uint64
	last  bool
	owner *modelEnd
	alias []byte // of the fault keepsPayload
}

// newModel makes a connected pair of model devices.
func newModel(elastic bool, f fault) (a, b *modelEnd) {
	m := &model{elastic: elastic, fault: f}
	m.changed.L = &m.mu
	for i := range m.ends {
		m.ends[i] = modelEnd{m: m, peer: &m.ends[1-i], regions: map[rdma.STag]modelRegion{}}
	}
	return &m.ends[0], &m.ends[1]
}

// change takes the lock for a call that changes something, and returns what ends
// the call.
func (e *modelEnd) change() func() {
	e.m.mu.Lock()
	return e.changed
}

func (e *modelEnd) changed() {
	e.m.changed.Broadcast()
	e.m.mu.Unlock()
}

func (e *modelEnd) Limits() rdma.Limits {
	return rdma.Limits{
		MaxMessage: modelMessage,
		SendBatch:  16,
		IRD:        modelDepth,
		ORD:        modelDepth,
		Elastic:    e.m.elastic,
	}
}

func (e *modelEnd) PostSend(wrs []rdma.SendWR) (int, error) {
	defer e.change()()
	for i, wr := range wrs {
		if err := e.sendError(); err != nil {
			return i, err
		}
		bare := len(wr.Payload) == 0
		switch {
		case !bare && e.busy():
			if e.m.fault == blocksWhenBusy {
				e.m.changed.Wait()
			}
			return i, nil
		case bare && e.busy() && e.m.fault == refusesBare:
			return i, rdma.ErrNoRoom
		case len(e.queue.rest()) >= modelBare && e.m.fault != boundless:
			return i, rdma.ErrNoRoom
		}
		p := e.m.parcel(kindSend)
		p.bytes = append(append(p.bytes, wr.Header...), wr.Payload...)
		p.s = wr.Invalidate
		e.queue.push(p)
		e.faultySend(p, wr)
		e.carry(true)
	}
	return len(wrs), nil
}

func (e *modelEnd) PostWrite(wr rdma.WriteWR) error {
	defer e.change()()
	if err := e.sendError(); err != nil {
		return err
	}
	if e.writes >= modelWrites {
		return rdma.ErrNoRoom
	}
	e.writes++
	p := e.m.parcel(kindWrite)
	p.local, p.s, p.va, p.id = wr.Local, wr.STag, wr.VA, wr.ID
	e.queue.push(p)
	e.carry(e.m.fault != writesLate)
	return nil
}

func (e *modelEnd) PostRead(wr rdma.ReadWR) error {
	defer e.change()()
	if err := e.sendError(); err != nil {
		return err
	}
	if len(e.reads.rest()) >= modelDepth {
		return rdma.ErrNoRoom
	}
	e.reads.push(modelRead{ReadWR: wr})
	p := e.m.parcel(kindReadRequest)
	p.s, p.va, p.size = wr.STag, wr.VA, len(wr.Local)
	e.queue.push(p)
	e.carry(true)
	return nil
}

// busy reports that a message with payload would be refused.
func (e *modelEnd) busy() bool { return len(e.queue.rest()) > 0 }

func (e *modelEnd) sendError() error {
	if e.err != nil && e.err != io.EOF {
		return e.err
	}
	return e.sendErr
}

func (e *modelEnd) Busy() bool {
	defer e.change()()
	return e.busy()
}

func (e *modelEnd) WaitRoom() error {
	defer e.change()()
	if e.m.fault != roomIdles {
		e.carriers++
		defer func() { e.carriers-- }()
	}
	e.carry(false)
	for e.busy() && !e.wokenRoom && e.sendError() == nil {
		e.m.changed.Wait()
	}
	e.wokenRoom = false
	return e.sendError()
}

func (e *modelEnd) WakeRoom() {
	defer e.change()()
	e.wokenRoom = e.m.fault != losesWakeRoom || e.carriers > 0
}

func (e *modelEnd) Flush() {
	defer e.change()()
	if e.m.fault == flushIdles {
		return
	}
	e.flushing = true
	e.carry(false)
}

// carry moves what is queued onto the wire while that has room: answers always,
// the rest if somebody carries it or it has just been posted.
func (e *modelEnd) carry(posted bool) {
	to := e.peer
	for to.err == nil && to.wireSize < modelCapacity {
		switch {
		case len(e.answers.rest()) > 0:
			e.carryAnswer()
		case len(e.queue.rest()) > 0 && (posted || e.flushing || e.carriers > 0):
			e.carryJob()
		default:
			e.flushing = false
			return
		}
	}
	if to.err != nil { // nobody is there to receive it
		e.queue, e.answers, e.writes = fifo[*parcel]{}, fifo[*parcel]{}, 0
	}
}

// carryJob carries a message, a Read Request or a segment of a Write.
func (e *modelEnd) carryJob() {
	job := e.queue.rest()[0]
	if job.kind != kindWrite {
		e.queue.pop()
		e.peer.arrive(job)
		return
	}
	p := e.m.parcel(kindWrite)
	n := min(len(job.local), modelSegment)
	p.bytes = append(p.bytes, job.local[:n]...)
	p.s, p.va = job.s, job.va
	job.local, job.va = job.local[n:], job.va+uint64(n)
	e.peer.arrive(p)
	if len(job.local) > 0 {
		return
	}
	e.queue.pop()
	e.writes--
	e.ready.push(rdma.Completion{Op: rdma.OpWrite, ID: job.id})
	e.m.recycle(job)
}

// carryAnswer carries a segment of a Read Response.
func (e *modelEnd) carryAnswer() {
	job := e.answers.rest()[0]
	n := min(job.size, modelSegment)
	mem, err := e.access(job.s, job.va, n, rdma.RemoteRead)
	if err != nil {
		e.fail(errors.New("a region was invalidated while the peer read it"))
		e.peer.arrive(e.m.parcel(kindReset))
		return
	}
	p := e.m.parcel(kindReadResponse)
	p.bytes = append(p.bytes, mem...)
	job.va, job.size = job.va+uint64(n), job.size-n
	p.last = job.size == 0
	if p.last {
		e.answers.pop()
		e.m.recycle(job)
	}
	e.peer.arrive(p)
}

// arrive puts a parcel on the wire towards e.
func (e *modelEnd) arrive(p *parcel) {
	if e.err != nil {
		e.m.recycle(p)
		return
	}
	e.wire.push(p)
	e.wireSize += len(p.bytes)
}

func (e *modelEnd) ProvideReceive(count, size int) (old int) {
	defer e.change()()
	if e.m.elastic {
		e.old = 0
	} else if size != e.size {
		e.old, e.oldSize = e.posted, e.size
	}
	e.count, e.size = count, size
	if e.m.elastic {
		e.posted = count - e.lent
	}
	e.posted = max(e.posted, count-e.lent)
	return e.old
}

func (e *modelEnd) Poll(wcs []rdma.Completion) (int, error) {
	defer e.change()()
	if e.m.fault == pollTakesWake {
		e.woken = false
	}
	return e.poll(wcs)
}

func (e *modelEnd) Wait(wcs []rdma.Completion) (int, error) {
	defer e.change()()
	if e.m.fault == losesWake {
		e.woken = false
	}
	for {
		n, err := e.poll(wcs)
		if n > 0 || err != nil || e.woken || e.m.fault == spins {
			e.woken = false
			return n, err
		}
		e.m.changed.Wait()
	}
}

func (e *modelEnd) Wake() {
	defer e.change()()
	e.woken = true
}

func (e *modelEnd) poll(wcs []rdma.Completion) (int, error) {
	for e.err == nil && len(e.wire.rest()) > 0 && len(e.ready.rest()) < len(wcs) {
		p := e.wire.pop()
		e.wireSize -= len(p.bytes)
		e.handle(p)
		e.carry(false)
		e.peer.carry(false)
		e.m.changed.Broadcast() // now: Wait may be about to park
	}
	n := 0
	for n < len(wcs) && len(e.ready.rest()) > 0 {
		wcs[n] = e.ready.pop()
		n++
	}
	if n > 0 || e.err == nil {
		return n, nil
	}
	if e.m.fault == freshError {
		return 0, fmt.Errorf("again: %w", e.err)
	}
	return 0, e.err
}

// handle takes a parcel off the wire.
func (e *modelEnd) handle(p *parcel) {
	switch p.kind {
	case kindSend:
		e.receive(p)
		return // which keeps it
	case kindWrite:
		mem, err := e.access(p.s, p.va, len(p.bytes), rdma.RemoteWrite)
		if err != nil {
			e.violated(err.Error())
		}
		copy(mem, p.bytes)
	case kindReadRequest:
		if _, err := e.access(p.s, p.va, p.size, rdma.RemoteRead); err != nil {
			e.violated(err.Error())
			break
		}
		p.kind = kindReadResponse
		e.answers.push(p)
		return
	case kindReadResponse:
		r := &e.reads.rest()[0]
		r.got += copy(r.Local[r.got:], p.bytes)
		if p.last {
			e.ready.push(rdma.Completion{Op: rdma.OpRead, ID: e.reads.pop().ID})
		}
	case kindTerminate:
		e.fail(&rdma.TerminateError{})
	case kindEOF:
		e.fail(io.EOF)
	case kindReset:
		e.fail(syscall.ECONNRESET)
	}
	e.m.recycle(p)
}

// receive has a message fill a receive buffer.
func (e *modelEnd) receive(p *parcel) {
	size := e.size
	if e.old > 0 {
		e.old--
		size = e.oldSize
	}
	if e.posted <= 0 && e.m.fault != overrunIgnored {
		e.violated("it sent a message for which no buffer is posted")
		return
	}
	if len(p.bytes) > size && e.m.fault != lengthIgnored {
		e.violated("it sent a message longer than the buffer")
		return
	}
	if p.s != 0 {
		if _, known := e.regions[p.s]; !known && e.m.fault != foreignRevoked {
			e.violated("it invalidated an STag that is not exposed to it")
			return
		}
		delete(e.regions, p.s)
	}
	e.posted--
	e.lent++
	p.owner = e
	e.faultyReceive(p)
	e.ready.push(rdma.Completion{Buffer: rdma.Buffer{Bytes: p.bytes, Owner: p}, Invalidated: p.s})
}

// Release implements [rdma.Lender].
func (p *parcel) Release() {
	e := p.owner
	defer e.change()()
	e.lent--
	if e.posted+e.lent < e.count {
		e.posted++
	}
	e.m.recycle(p)
}

// access checks what the peer wants to reach.
func (e *modelEnd) access(s rdma.STag, va uint64, n int, want rdma.Access) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	r, known := e.region(s)
	switch at := va - r.va; {
	case !known:
		return nil, errors.New("it named an unknown STag")
	case r.access&want == 0 && e.m.fault != rightsIgnored:
		return nil, errors.New("it lacks the right to this access")
	case at > uint64(len(r.mem)) || uint64(n) > uint64(len(r.mem))-at:
		return e.outside(r, at, n)
	default:
		return r.mem[at : at+uint64(n)], nil
	}
}

func (e *modelEnd) Register(b []byte, access rdma.Access) (rdma.Region, error) {
	defer e.change()()
	s := rdma.STag(rand.Uint32())
	for _, taken := e.regions[s]; taken || s == 0; _, taken = e.regions[s] {
		s = rdma.STag(rand.Uint32())
	}
	if e.m.fault == countsSTags {
		s = rdma.STag(len(e.regions) + 1)
	}
	r := modelRegion{b, rand.Uint64() >> 16, access}
	e.regions[s] = r
	e.faultyRegister(s, r)
	return rdma.Region{STag: s, VA: r.va}, nil
}

func (e *modelEnd) Invalidate(s rdma.STag) {
	defer e.change()()
	if e.m.fault != staysExposed {
		delete(e.regions, s)
	}
}

func (e *modelEnd) Drain(d time.Duration) error {
	defer e.change()()
	if e.m.fault == drainsNothing {
		return nil
	}
	expired := false
	timer := time.AfterFunc(d, func() {
		defer e.change()()
		expired = true
	})
	defer timer.Stop()
	e.carriers++
	defer func() { e.carriers-- }()
	e.carry(false)
	for e.err == nil && (e.busy() || len(e.answers.rest()) > 0) {
		if expired && e.m.fault != drainsForever {
			return os.ErrDeadlineExceeded
		}
		e.m.changed.Wait()
	}
	return e.err
}

func (e *modelEnd) Close() error {
	defer e.change()()
	last := kindEOF
	if e.busy() || len(e.answers.rest()) > 0 {
		last = kindReset // this is not between two messages
	}
	if e.m.fault == closeOvertakes {
		e.peer.wire, e.peer.wireSize = fifo[*parcel]{}, 0
	}
	e.end(last)
	return nil
}

func (e *modelEnd) Abort() error {
	defer e.change()()
	if e.m.fault == abortsKindly {
		e.end(kindEOF)
		return nil
	}
	if !e.closed {
		e.peer.wire, e.peer.wireSize = fifo[*parcel]{}, 0
	}
	e.end(kindReset)
	return nil
}

// end ends the queue pair, once, and tells the peer behind what is on the wire.
func (e *modelEnd) end(last kind) {
	if e.closed {
		return
	}
	e.closed = true
	e.faultyEnd()
	if e.err == nil {
		e.fail(net.ErrClosed)
	}
	e.peer.arrive(e.m.parcel(last))
	e.peer.sendErr = syscall.EPIPE
}

// violated ends the queue pair because of what the peer did, and tells it.
func (e *modelEnd) violated(what string) {
	e.fail(&rdma.ProtocolError{Rule: "the model's", What: what})
	e.peer.arrive(e.m.parcel(kindTerminate))
}

// fail ends the queue pair.
func (e *modelEnd) fail(err error) {
	e.err = err
	e.queue, e.answers, e.wire = fifo[*parcel]{}, fifo[*parcel]{}, fifo[*parcel]{}
	e.wireSize, e.writes = 0, 0
	clear(e.regions)
	e.peer.carry(false)
}

// parcel returns an empty one.
func (m *model) parcel(k kind) *parcel {
	if len(m.spare) == 0 || m.fault == allocates {
		return &parcel{kind: k}
	}
	p := m.spare[len(m.spare)-1]
	m.spare = m.spare[:len(m.spare)-1]
	*p = parcel{kind: k, bytes: p.bytes[:0]}
	return p
}

func (m *model) recycle(p *parcel) { m.spare = append(m.spare, p) }

// fifo is a queue that keeps its memory when it runs empty.
type fifo[T any] struct {
	items []T
	head  int
}

func (f *fifo[T]) rest() []T { return f.items[f.head:] }

func (f *fifo[T]) push(v T) { f.items = append(f.items, v) }

func (f *fifo[T]) pop() T {
	var none T
	v := f.items[f.head]
	f.items[f.head] = none
	f.head++
	if f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
	return v
}
