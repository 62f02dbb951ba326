package iwarp

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/internal/rnic"
)

// QueuePair is one end of an RDMAP stream over a connection of TCP's kind. It
// has no goroutine, but for a pump while something that was posted waits for
// the stream and nobody is in WaitRoom.
//
// Locks: rx.mu is held by Poll and Wait for as long as they take, parked or not,
// so that Close and Abort know when nothing lands any more. tx.mu, below it,
// guards the way out. The tables of regions and of outstanding Reads have locks of their
// own, below tx.mu.
type QueuePair struct {
	p          params
	t          transport
	tx         sender
	rx         receiver
	cq         completions
	regions    rnic.Regions
	reads      rnic.Reads[reading]
	closing    atomic.Bool // Close or Abort was called
	terminated atomic.Bool // a Terminate of ours is on its way
	finished   bool        // Finish has ended this direction
	closed     sync.Once
	closeErr   error
}

var (
	_ rdma.QueuePair = (*QueuePair)(nil)
	_ rdma.Finisher  = (*QueuePair)(nil)
	_ rdma.Settler   = (*QueuePair)(nil)

	_ rdma.BusyPoller = (*QueuePair)(nil)
)

// newQueuePair starts the stream on a connection whose MPA negotiation is done.
func newQueuePair(c net.Conn, p params) (*QueuePair, error) {
	t, err := newTransport(c)
	if err != nil {
		return nil, err
	}
	q := &QueuePair{p: p, t: t}

	q.tx.silent = !p.initiator
	q.tx.updateLocked()
	q.rx.q = q

	switch {
	case !p.initiator:
	case p.rtr == rtrWrite:
		err = q.postWrite(rdma.WriteWR{STag: rtrSTag}, true)
	case p.rtr == rtrRead:
		err = q.postRead(rdma.ReadWR{STag: rtrSTag}, max(p.ord, 1), true)
	}
	if err != nil {
		q.Abort()
		return nil, err
	}
	return q, nil
}

// rtrSTag is named by the zero-length RTR message, where it is not looked at;
// it is siw's.
const rtrSTag = 1

// Limits returns what was agreed.
func (q *QueuePair) Limits() rdma.Limits {
	b := maxBatch
	if q.p.crc {
		b = crcBatch
	}
	return rdma.Limits{MaxMessage: bigChunk, SendBatch: b, IRD: q.p.ird, ORD: q.p.ord, Invalidate: true, Outlives: true, Elastic: true}
}

// SetBusyPoll sets how long Wait looks before it parks; see rdma.BusyPoller. A connection of
// a program's own making is not looked at.
func (q *QueuePair) SetBusyPoll(d time.Duration) { q.t.setBusyPoll(d) }

// Wake makes Wait return.
func (q *QueuePair) Wake() { q.t.wakeRead() }

// Drain waits until closing cannot destroy what was sent; see rdma.QueuePair. A
// kernel that has accepted bytes sends them even when this process ends, unless
// something comes for a socket that is gone; so it waits for the peer's kernel
// to have them, but does not count it as a failure if that takes longer than d.
func (q *QueuePair) Drain(d time.Duration) error {
	deadline := time.Now().Add(d)
	timer := time.AfterFunc(d, q.WakeRoom)
	defer timer.Stop()
	q.Flush() // responses, that nobody may be carrying
	if err := q.sendError(); err != nil {
		return err
	}
	for q.Busy() {
		if err := q.WaitRoom(); err != nil {
			return err
		}
		if q.Busy() && !time.Now().Before(deadline) {
			return os.ErrDeadlineExceeded
		}
	}
	inProcess := 0
	sent := rnic.Until(deadline, func() bool {
		var total int
		total, inProcess = q.t.unsent()
		return total == 0
	})
	if !sent && inProcess > 0 {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// Finish sends TCP's FIN, and reports that the peer's kernel has all that was sent, or
// that the stream has ended; see rdma.Finisher.
func (q *QueuePair) Finish() bool {
	tx := &q.tx
	tx.Lock()
	failed, pending := tx.Err != nil, tx.pendingLocked() || tx.Carrying
	tx.Unlock()
	switch {
	case pending:
		return false
	case failed:
		return true
	case !q.finished:
		q.finished = true
		q.t.closeWrite()
	}
	return q.t.unacked() == 0
}

// sendError returns why the sending half has ended, or nil.
func (q *QueuePair) sendError() error {
	q.tx.Lock()
	defer q.tx.Unlock()
	return q.tx.Err
}

// Close ends the channel behind what was sent; see rdma.QueuePair.
func (q *QueuePair) Close() error { return q.end(q.t.close) }

// Abort resets the channel. Behind a Terminate it closes it instead, since a
// reset would overtake that.
func (q *QueuePair) Abort() error {
	if q.terminated.Load() {
		return q.Close()
	}
	return q.end(q.t.abort)
}

func (q *QueuePair) end(how func() error) error {
	q.closed.Do(func() {
		q.closing.Store(true)
		q.tx.Lock()
		q.sendFailedLocked(net.ErrClosed)
		q.tx.Unlock()
		q.t.wakeRead() // a read that looks has the descriptor, which close waits for
		q.closeErr = how()
		q.regions.Close()
		q.tx.WaitPump()
		// The memory of RDMA Reads is the caller's again. Who polls leaves, since
		// the stream has ended, and who polls next places nothing.
		q.rx.mu.Lock()
		if q.rx.err == nil {
			q.fail(net.ErrClosed)
		}
		q.rx.mu.Unlock()
	})
	return q.closeErr
}

// device is the registry's entry.
type device struct{}

func init() { rdma.RegisterDevice(device{}) }

// Name is "iwarp".
func (device) Name() string { return "iwarp" }

// Probe returns nil: TCP is everywhere.
func (device) Probe() error { return nil }
