package iwarp

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/rdma"
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
	p       params
	t       transport
	tx      sender
	rx      receiver
	cq      completions
	regions regions
	reads   readings

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
	q.tx.cond.L = &q.tx.mu
	q.tx.silent = !p.initiator
	q.tx.update()
	q.rx.q = q
	q.reads.limit = max(p.ord, 1)
	switch {
	case !p.initiator:
	case p.rtr == rtrWrite:
		err = q.postWrite(rdma.WriteWR{STag: rtrSTag}, true)
	case p.rtr == rtrRead:
		err = q.postRead(rdma.ReadWR{STag: rtrSTag}, true)
	}
	q.reads.limit = p.ord
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
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		total, inProcess := q.t.unsent()
		if total == 0 {
			return nil
		}
		if !time.Now().Before(deadline) {
			if inProcess > 0 {
				return os.ErrDeadlineExceeded
			}
			return nil
		}
		time.Sleep(pause)
	}
}

// Finish sends TCP's FIN, and reports that the peer's kernel has all that was sent, or
// that the stream has ended; see rdma.Finisher.
func (q *QueuePair) Finish() bool {
	tx := &q.tx
	tx.mu.Lock()
	failed, pending := tx.err != nil, tx.pending() || tx.pumping
	tx.mu.Unlock()
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
	q.tx.mu.Lock()
	defer q.tx.mu.Unlock()
	return q.tx.err
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
		q.tx.mu.Lock()
		q.sendFailed(net.ErrClosed)
		q.tx.mu.Unlock()
		q.t.wakeRead() // a read that looks has the descriptor, which close waits for
		q.closeErr = how()
		q.regions.close()
		q.tx.pump.Wait()
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
