package rdmatest

import (
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/gosdp/gosdp/rdma"
)

const (
	modelMessage  = 256 << 10
	modelSegment  = 64 << 10
	modelCapacity = 1 << 20 / lighter // bytes on the wire in one direction
	modelDepth    = 8                 // IRD and ORD
	modelWrites   = 32                // Writes that may be queued
	modelBare     = 1 << 16           // messages without payload that may be queued
)

// model is the simplest device that keeps the contract of rdma.QueuePair: both ends are in one
// process, under one lock, without goroutines. What is posted goes through the queue of the sender,
// the wire, and the receiver's Poll, so all states of the contract occur. The wire holds
// modelCapacity bytes, and is carried only when the contract says that a call carries.
type model struct {
	mu         sync.Mutex
	changed    sync.Cond // wakes every call that waits for anything
	ends       [2]modelEnd
	elastic    bool
	fault      fault
	afterwards []func()  // of the fault readsOn
	spare      []*parcel // recycled, so that the steady state allocates nothing
}

// modelEnd is one end. model.mu guards all of it.
type modelEnd struct {
	rdma.Base

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
	old, oldSize     int // receive buffers of the former size that are still posted, which are filled first
	ready            fifo[rdma.Completion]
	reads            fifo[modelRead]
	regions          map[rdma.STag]modelRegion
	woken, wokenRoom bool
	err, sendErr     error
	closed           bool

	first     []byte    // of the fault reusesLent
	late      []*parcel // of the fault placesLate
	releasing bool
}

type modelRead struct {
	rdma.ReadWR
	got int
}

// kind is the kind of a parcel.
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

// parcel is one job in a queue, and one segment on the wire. A receive buffer is the parcel that has
// arrived.
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

// change takes the lock for a call that changes something, and returns the function that ends the
// call.
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

		Finishes:       e.m.fault != undeclared,
		Shrinks:        e.m.fault != undeclared,
		NeedsKeepalive: e.m.fault != undeclared,
	}
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

// end ends the queue pair, once, and tells the peer after what is on the wire.
func (e *modelEnd) end(last kind) {
	if e.closed {
		return
	}
	e.closed = true
	for _, do := range e.m.afterwards {
		do()
	}
	e.faultyEnd()
	e.faultyReads()
	if e.err == nil && e.m.fault == closesAsPeer {
		e.fail(io.EOF)
	}
	if e.err == nil {
		e.fail(net.ErrClosed)
	}
	e.peer.arrive(e.m.parcel(last))
	e.peer.sendErr = syscall.EPIPE
}

// violated ends the queue pair because of something that the peer did, and tells the peer.
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

// parcel returns an empty parcel.
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

// fifo is a queue that keeps its memory when it is empty.
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
