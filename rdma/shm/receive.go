//go:build linux

package shm

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/internal/rnic"
)

// The receiving path:
//
//  1. take reads the records that the peer has published, one after the other.
//  2. A message is copied to a chunk and lent from there, so the peer cannot change it any more.
//  3. Records about RDMA Reads and Writes are handled in rdma.go.
//  4. After each batch, the peer learns how much of the ring is free again.
//  5. If there is no record, Wait polls, and then parks at the doorbell.

const (
	// takeMost is about how many bytes of messages one Poll takes. They are still in the
	// processor's cache when the program copies them.
	takeMost = 64 << 10
	// mostRecords is how many records one Poll takes before it handles other things. A correct
	// peer has fewer records of RDMA Reads and Writes outstanding, so the messages after those
	// are found.
	mostRecords = 4 << 10
)

// receiver is the receiving half of a queue pair. It belongs to the polling goroutine, which holds
// mu, except for the atomic fields.
type receiver struct {
	mu   sync.Mutex
	in   consumer
	spin spin.Waiter

	cur *rnic.Chunk // nil: none

	out    []rdma.Completion // where take appends: the caller's wcs
	used   int
	bytes  int32 // of messages in out
	filled int32 // bytes of cur in use

	write      *pull  // the RDMA Write of the peer that is being carried out, or was last; nil: there was none
	writesDone uint32 // completed RDMA Writes of this end

	told bool  // err was delivered: nothing comes after it
	err  error // sticky, delivered after everything before it

	buffers rnic.Buffers
}

// writing reports whether an RDMA Write of the peer is being carried out.
func (rx *receiver) writing() bool { return rx.write != nil && rx.write.active }

// ProvideReceive sets the number and size of the receive buffers. They are promises: the memory is
// found when a message arrives.
func (q *QueuePair) ProvideReceive(count, size int) (old int) {
	q.rx.buffers.Provide(count, size)
	return 0
}

// Poll fills wcs with the completions that are there; see rdma.QueuePair.
func (q *QueuePair) Poll(wcs []rdma.Completion) (int, error) {
	q.rx.mu.Lock()
	n, err := q.poll(wcs, false)
	q.rx.mu.Unlock()
	return n, err
}

// Wait is Poll that parks; see rdma.QueuePair.
func (q *QueuePair) Wait(wcs []rdma.Completion) (int, error) {
	q.rx.mu.Lock()
	n, err := q.poll(wcs, true)
	q.rx.mu.Unlock()
	return n, err
}

func (q *QueuePair) poll(wcs []rdma.Completion, wait bool) (int, error) {
	rx := &q.rx
	if rx.told {
		return 0, rx.err
	}
	rx.out, rx.used, rx.bytes = wcs, 0, 0
	for {
		if q.closing.Load() {
			rx.fail(net.ErrClosed)
		}
		if rx.err == nil {
			if err := q.take(); err != nil {
				q.violated(err)
			}
		}
		if rx.used > 0 {
			rx.out = nil
			return rx.used, nil
		}
		if rx.err == nil && !rx.in.hasRecord() && !rx.writing() && !q.granted() {
			if err := q.ended(); err != nil && !rx.in.hasRecord() { // what it wrote before comes first
				q.peerEnded(err)
			}
		}
		if rx.err != nil {
			rx.told, rx.out = true, nil
			return 0, rx.err
		}
		if !wait {
			rx.out = nil
			return 0, nil
		}
		if q.bell.in.woken.Load() {
			q.bell.in.woken.Store(false)
			rx.out = nil
			return 0, nil
		}
		if !rx.writing() && !q.granted() && !q.hasWork() {
			q.sleep()
		}
	}
}

// sleep returns when there may be something to do: it polls, then parks.
func (q *QueuePair) sleep() {
	rx := &q.rx
	var found bool
	if watched.Runs() {
		found = rx.spin.Glance(spin.Looks, q.hasWork, rx.in.hasRecord)
	} else {
		found = rx.spin.Spin(spin.Looks, q.hasWork, rx.in.hasRecord)
	}
	if found {
		return
	}
	rx.trim()
	begin := spin.Clock()
	if !q.bell.park(&q.bell.in) {
		rx.spin.Stayed()
	} else if rx.in.hasRecord() {
		rx.spin.Parked(begin, time.Duration(q.theirs().rang.Load()), spin.Clock())
	}
}

// SetBusyPoll sets how long Wait polls before it parks; see rdma.BusyPoller. Two ends in one process
// never poll, because they would only take the processor from each other.
func (q *QueuePair) SetBusyPoll(d time.Duration) {
	if q.link != nil && q.link.pid == os.Getpid() {
		d = spin.Off
	}
	q.rx.spin.SetBusyPoll(d)
	q.tx.spin.SetBusyPoll(d)
}

// hasWork reports whether there is something for Wait to look at. The caller must keep the memory
// mapped.
func (q *QueuePair) hasWork() bool {
	return q.rx.in.hasRecord() || q.bell.in.woken.Load() || q.rx.in.dir.state.Load() != stateOpen ||
		q.bell.dead.Load() || q.tx.ring.dir.written.Load() != q.rx.writesDone || q.fault.Load() != nil
}

// take moves records from the ring to out, as far as out has room.
func (q *QueuePair) take() error {
	rx := &q.rx
	before := rx.in.pos
	err := q.takeRecords()
	if err == nil {
		err = q.progress()
	}
	if rx.in.pos != before && rx.in.release() {
		q.bell.ring()
	}
	return err
}

func (q *QueuePair) takeRecords() error {
	rx := &q.rx
	moved := 0 // bytes of the peer's Writes
	for records := 0; records < mostRecords && rx.used < len(rx.out) && rx.bytes < takeMost; records++ {
		if rx.writing() {
			n, err := q.pullWrite(pullMost - moved)
			if moved += n; rx.writing() || err != nil {
				return err
			}
			continue
		}
		r, ok, err := rx.in.next()
		if !ok || err != nil {
			return err
		}
		switch r.kind {
		case recordSend, recordInvalidate, recordOpen:
			err = q.receiveSend(r)
		case recordGrow:
			err = rx.in.mayGrow(r)
		case recordWrite:
			err = q.receiveWrite(r)
		case recordRead:
			err = q.receiveRead(r)
		case recordGrant:
			err = q.receiveGrant(r)
		case recordRefetched:
			err = q.receiveRefetched(r)
		default:
			err = violation("record", "record of unknown kind %d", r.kind)
		}
		if err != nil {
			return err
		}
		rx.in.done(r)
	}
	return nil
}

// receiveSend copies a message from the ring and lends it.
func (q *QueuePair) receiveSend(r record) error {
	rx := &q.rx
	from, n := 0, r.length
	if r.kind == recordInvalidate {
		if from, n = 8, n-8; n < 0 {
			return violation("record", "a Send with Invalidate of %d bytes", r.length)
		}
	}
	if size := rx.buffers.Size(); n > size || n > maxMessage {
		return violation("message", "message of %d bytes for a buffer of %d", n, size)
	}
	if !rx.buffers.Take() {
		return violation("message", "message of %d bytes without a posted receive buffer", n)
	}
	c := &rx.out[rx.used]
	*c = rdma.Completion{Op: rdma.OpReceive}
	if r.kind == recordInvalidate {
		var b [8]byte
		rx.in.body(b[:], 0)
		c.Invalidated = rdma.STag(binary.NativeEndian.Uint32(b[:]))
		if !q.revoke(c.Invalidated) {
			return violation("message", "STag %#x to invalidate is not registered here", c.Invalidated)
		}
	}
	b, of := rx.alloc(n)
	rx.in.body(b, from)
	c.Buffer = rdma.Buffer{Bytes: b, Owner: of}
	rx.used++
	rx.bytes += int32(n)
	return nil
}

// peerEnded ends the queue pair because the peer has ended.
func (q *QueuePair) peerEnded(err error) {
	if q.closing.Load() {
		q.rx.fail(net.ErrClosed)
		return
	}
	q.tx.Lock()
	err = q.meaningLocked(err)
	q.sendFailedLocked(broken(err))
	q.tx.Unlock()
	q.rx.fail(err)
}

// violated ends the queue pair because the peer has violated a rule, or is gone in the middle of a
// transfer. While this end is closing, it may have caused this itself: its regions and its socket
// go first. The fault is kept nevertheless, because the channel must not serve another connection
// after one.
func (q *QueuePair) violated(err error) {
	if q.closing.Load() {
		if f, ok := err.(*rdma.ProtocolError); ok {
			q.fault.CompareAndSwap(nil, f)
		}
		q.rx.fail(net.ErrClosed)
		return
	}
	q.tx.Lock()
	if err = q.meaningLocked(err); err == io.EOF {
		q.sendFailedLocked(broken(err))
	}
	q.sendFailedLocked(err)
	q.tx.Unlock()
	q.rx.fail(err)
}

// fail ends the receiving half, and drops its chunk.
func (rx *receiver) fail(err error) {
	if rx.err == nil {
		rx.err = err
	}
	rx.write = nil
	if rx.cur != nil {
		rx.cur.Drop()
		rx.cur = nil
	}
}
