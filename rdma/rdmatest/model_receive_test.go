package rdmatest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"syscall"

	"github.com/gosdp/gosdp/rdma"
)

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
	if e.m.fault == wakesItself && rand.IntN(100) == 0 {
		return 0, nil
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
		e.m.changed.Broadcast() // this early, although Wait may be about to park
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

// handle takes a parcel from the wire.
func (e *modelEnd) handle(p *parcel) {
	switch p.kind {
	case kindSend:
		e.receive(p)
		return // the wire keeps it
	case kindWrite:
		if e.postpone(p) {
			return
		}
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

// receive fills a receive buffer with a message.
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
	if e.m.fault == releasesTwo {
		e.posted++
	}
	e.m.recycle(p)
	e.placeLate()
}
