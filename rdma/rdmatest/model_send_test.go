package rdmatest

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/gosdp/gosdp/rdma"
)

func (e *modelEnd) PostSend(wrs []rdma.SendWR) (int, error) {
	defer e.change()()
	for e.m.fault == sendsLate && e.peer.wireSize > 0 {
		e.m.changed.Wait()
	}
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
	e.carry(true)
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

// carry moves what is queued to the wire while that has room: answers always, the rest if a call
// carries it or it has just been posted.
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
	if to.err != nil { // it cannot receive any more
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

// arrive puts a parcel on the wire to e.
func (e *modelEnd) arrive(p *parcel) {
	if e.err != nil {
		e.m.recycle(p)
		return
	}
	e.wire.push(p)
	e.wireSize += len(p.bytes)
	e.m.changed.Broadcast() // this early, although the call that carries it may be about to park
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
