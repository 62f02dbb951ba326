package iwarp

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/internal/rnic"
	"github.com/gosdp/gosdp/rdma/iwarp/internal/nic"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
)

// QueuePair is one end of an RDMAP stream over a TCP connection or something like it. It has no
// goroutine, except for the pump while something that was posted waits for the stream and no
// call of WaitRoom carries it.
//
// Locks: Poll and Wait hold rx.mu until they return, even while parked, so Close and Abort know
// when nothing is written to the program's memory any more. The mutex of tx, which comes after
// it, guards the sending half. The tables of regions and of outstanding Reads have their own
// locks, which come last.
type QueuePair struct {
	rdma.Base

	p          params
	t          transport
	tx         sender
	rx         receiver
	cq         completions
	regions    nic.Regions
	reads      nic.Reads[reading]
	closing    atomic.Bool // Close or Abort was called
	terminated atomic.Bool // a Terminate was sent, or is about to be
	finished   bool        // Finish has ended this direction
	closed     sync.Once
	closeErr   error
}

var _ rdma.QueuePair = (*QueuePair)(nil)

// params is what the two ends have agreed on, and what follows for this one.
type params struct {
	mpa.Params
	initiator bool
	maxULPDU  int // of what this end sends
}

// newQueuePair starts the stream on a connection whose MPA negotiation is done.
func newQueuePair(c net.Conn, p params) (*QueuePair, error) {
	t, err := newTransport(c)
	if err != nil {
		return nil, err
	}
	q := &QueuePair{p: p, t: t}
	q.tx.Make()
	q.tx.silent = !p.initiator
	q.tx.updateLocked()
	q.rx.q = q

	switch {
	case !p.initiator:
	case p.RTR == mpa.RTRWrite:
		err = q.postWrite(rdma.WriteWR{STag: rtrSTag}, true)
	case p.RTR == mpa.RTRRead:
		err = q.postRead(rdma.ReadWR{STag: rtrSTag}, max(p.ORD, 1), true)
	}
	if err != nil {
		q.Abort()
		return nil, err
	}
	return q, nil
}

// rtrSTag is the STag of the zero-length RTR message, which the responder ignores; siw uses the
// same.
const rtrSTag = 1

// Limits returns what was agreed.
func (q *QueuePair) Limits() rdma.Limits {
	b := maxBatch
	if q.p.CRC {
		b = crcBatch
	}
	return rdma.Limits{
		MaxMessage: bigChunk, SendBatch: b, IRD: q.p.IRD, ORD: q.p.ORD,
		Invalidate: true, Outlives: true, Elastic: true, OverTCP: true, Finishes: true,
	}
}

// SetBusyPoll sets how long Wait polls before it parks; see rdma.QueuePair. It has no effect on
// a program's own kind of connection.
func (q *QueuePair) SetBusyPoll(d time.Duration) { q.t.setBusyPoll(d) }

// Wake makes Wait return.
func (q *QueuePair) Wake() { q.t.wakeRead() }

// Drain waits until closing cannot destroy what was sent; see rdma.QueuePair. A kernel that has
// accepted bytes sends them even if this process ends, unless something arrives for the closed
// socket. Drain therefore waits until the peer's kernel has them, but if that takes longer than
// d, this is not a failure.
func (q *QueuePair) Drain(d time.Duration) error {
	deadline := time.Now().Add(d)
	timer := time.AfterFunc(d, q.WakeRoom)
	defer timer.Stop()
	q.Flush() // there may be responses that no goroutine carries
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

// Finish sends TCP's FIN. It reports whether the peer's kernel has everything that was sent, or the
// stream has ended; see rdma.QueuePair.
func (q *QueuePair) Finish() (ended, done bool) {
	tx := &q.tx
	tx.Lock()
	failed, pending := tx.Err != nil, tx.pendingLocked() || tx.Carrying
	tx.Unlock()
	switch {
	case pending:
		return false, false
	case failed:
		return true, true
	case !q.finished:
		q.finished = true
		q.t.closeWrite()
	}
	unsent, _ := q.t.unsent()
	return true, unsent == 0
}

// sendError returns why the sending half has ended, or nil.
func (q *QueuePair) sendError() error {
	q.tx.Lock()
	defer q.tx.Unlock()
	return q.tx.Err
}

// Close ends the channel after what was sent; see rdma.QueuePair.
func (q *QueuePair) Close() error { return q.end(q.t.close) }

// Abort resets the channel. After a Terminate it closes the channel, because a reset would
// overtake the Terminate.
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
		q.t.wakeRead() // a read that polls holds the descriptor, and close waits for it
		q.closeErr = how()
		q.regions.Close()
		q.tx.WaitPump()
		// The memory of RDMA Reads belongs to the caller again: a goroutine that polls leaves,
		// because the stream has ended, and one that polls later places nothing.
		q.rx.mu.Lock()
		if q.rx.err == nil {
			q.fail(net.ErrClosed)
		}
		q.rx.mu.Unlock()
	})
	return q.closeErr
}

// device is the registry's entry.
type device struct{ rdma.BaseDevice }

func init() { rdma.RegisterDevice(device{}) }

// Name is "iwarp".
func (device) Name() string { return "iwarp" }

// OnlyIfNamed returns that iwarp is slower than the TCP connection that it would use.
func (device) OnlyIfNamed(netip.Addr) error { return errSlower }

var errSlower = errors.New("slower than TCP: used only if named (SDP_DEVICES) or on network sdp")

// Probe returns nil: TCP is everywhere.
func (device) Probe() error { return nil }
