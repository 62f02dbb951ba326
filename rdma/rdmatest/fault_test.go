package rdmatest

import (
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/gosdp/gosdp/rdma"
)

// fault is a way in which a model device breaks the contract. Faults of one line are in the model;
// the rest are here.
type fault string

const (
	sound          fault = ""
	reorders       fault = "messages swap places in the queue"
	losesMessage   fault = "a message is lost now and then"
	truncates      fault = "a message that fills an FPDU loses a byte"
	keepsPayload   fault = "PostSend keeps the caller's payload"
	reusesLent     fault = "a lent buffer is filled again"
	overrunIgnored fault = "a message without a buffer is delivered"
	lengthIgnored  fault = "a message longer than the buffer is delivered"
	foreignRevoked fault = "a Send may invalidate anything"
	freshError     fault = "each call returns an error of its own"
	placesLate     fault = "a Write is placed after the next message"
	rightsIgnored  fault = "every region may be read and written"
	oneTooMany     fault = "an access may go one byte too far"
	oneTooEarly    fault = "an access may begin one byte before the region"
	wrapsAround    fault = "the end of an access overflows"
	sharesSTags    fault = "a region is known to all connections"
	countsSTags    fault = "STags are counted up"
	staysExposed   fault = "Invalidate does nothing"
	losesWake      fault = "a Wake that finds nobody waiting is lost"
	pollTakesWake  fault = "Poll uses up a Wake"
	spins          fault = "Wait does not park"
	losesWakeRoom  fault = "a WakeRoom that finds nobody waiting is lost"
	roomIdles      fault = "WaitRoom carries nothing"
	flushIdles     fault = "Flush carries nothing"
	blocksWhenBusy fault = "PostSend waits for room"
	refusesBare    fault = "a Busy device refuses bare messages"
	boundless      fault = "a Busy device takes any number of bare messages"
	drainsNothing  fault = "Drain does not wait"
	drainsForever  fault = "Drain ignores its deadline"
	closeOvertakes fault = "Close destroys what was sent"
	abortsKindly   fault = "Abort looks like Close"
	leaks          fault = "Close leaves a goroutine behind"
	allocates      fault = "every message is allocated"

	readsOn         fault = "a Read's Local is filled after Close or Abort"
	closesAsPeer    fault = "the end that closes gets io.EOF"
	registersAlone  fault = "Register and Invalidate are not safe for concurrent use"
	registersClosed fault = "Register succeeds after Close"
	sendsLate       fault = "PostSend waits until the peer has received"
	invalidatesLate fault = "Invalidate waits for another call"
	wakesItself     fault = "Wait returns nothing now and then"
	releasesTwo     fault = "Release posts two buffers"
	idlesTooMuch    fault = "Shrink gives back what is in use"
	losesLost       fault = "Lost does nothing"
	lostAsPeer      fault = "Lost looks like a reset by the peer"
	finishesEarly   fault = "Finish does not look at what is queued"
	finishesNever   fault = "Finish does not notice that the channel has ended"
	finishesLate    fault = "Finish waits until the queue is empty"
	undeclared      fault = "Limits does not say what the device can do"
	widens          fault = "Width returns more than was asked for"
)

// faultySend spoils a message that has just been queued.
func (e *modelEnd) faultySend(p *parcel, wr rdma.SendWR) {
	queued := e.queue.rest()
	last := len(queued) - 1
	switch {
	case e.m.fault == reorders && last > 0:
		queued[last], queued[last-1] = queued[last-1], queued[last]
	case e.m.fault == losesMessage && rand.IntN(50) == 0:
		p.bytes = p.bytes[:0]
	case e.m.fault == truncates && len(p.bytes) == 64768-18:
		p.bytes = p.bytes[:len(p.bytes)-1]
	case e.m.fault == keepsPayload:
		p.alias = wr.Payload
	}
}

// faultyReceive spoils a message that is about to be delivered, or the first
// one that was.
func (e *modelEnd) faultyReceive(p *parcel) {
	switch {
	case e.m.fault == keepsPayload:
		copy(p.bytes[len(p.bytes)-len(p.alias):], p.alias)
	case e.m.fault == reusesLent && e.first == nil:
		if len(p.bytes) >= 8 {
			e.first = p.bytes
		}
	case e.m.fault == reusesLent:
		// A single byte would sometimes get its former value.
		binary.LittleEndian.PutUint64(e.first, binary.LittleEndian.Uint64(e.first)+1)
	}
}

// postpone keeps a Write until a message has been released.
func (e *modelEnd) postpone(p *parcel) bool {
	if e.m.fault != placesLate || e.releasing {
		return false
	}
	e.late = append(e.late, p)
	return true
}

func (e *modelEnd) placeLate() {
	e.releasing = true
	for _, p := range e.late {
		e.handle(p)
	}
	e.late, e.releasing = nil, false
}

// allRegions are the regions that the fault sharesSTags confuses.
var allRegions = struct {
	sync.Mutex
	of map[rdma.STag]modelRegion
}{of: map[rdma.STag]modelRegion{}}

func (e *modelEnd) faultyRegister(s rdma.STag, r modelRegion) {
	if e.m.fault == sharesSTags {
		allRegions.Lock()
		defer allRegions.Unlock()
		allRegions.of[s] = r
	}
}

// region returns the region that the peer names with s.
func (e *modelEnd) region(s rdma.STag) (modelRegion, bool) {
	if e.m.fault == sharesSTags {
		allRegions.Lock()
		defer allRegions.Unlock()
		r, known := allRegions.of[s]
		return r, known
	}
	r, known := e.regions[s]
	return r, known
}

// outside is an access that leaves the region. A faulty device grants it.
func (e *modelEnd) outside(r modelRegion, at uint64, n int) ([]byte, error) {
	end := at + uint64(n)
	if e.m.fault == oneTooMany && end == uint64(len(r.mem))+1 ||
		e.m.fault == oneTooEarly && at == ^uint64(0) ||
		e.m.fault == wrapsAround && end < at {
		first := unsafe.Pointer(unsafe.SliceData(r.mem))
		return unsafe.Slice((*byte)(unsafe.Add(first, int(at))), n), nil
	}
	return nil, errors.New("it left the bounds of a region")
}

// aloneLocked lets another goroutine replace the table of regions with an older one, before a change
// of the table.
func (e *modelEnd) aloneLocked() {
	if e.m.fault != registersAlone {
		return
	}
	regions := maps.Clone(e.regions)
	e.changed()
	runtime.Gosched()
	e.m.mu.Lock()
	e.regions = regions
}

// faultyReads fills the memory of outstanding Reads when the other end has ended too.
func (e *modelEnd) faultyReads() {
	if reads := slices.Clone(e.reads.rest()); e.m.fault == readsOn && len(reads) > 0 {
		e.m.afterwards = append(e.m.afterwards, func() {
			for _, r := range reads {
				fill(r.Local, canary)
			}
		})
	}
}

// faultyEnd leaves a goroutine in a device that ends.
func (e *modelEnd) faultyEnd() {
	if e.m.fault == leaks {
		go func() { select {} }()
	}
}
