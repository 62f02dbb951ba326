//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/internal/rnic"
)

// QueuePair is one end of a channel of the hardware. It has no goroutine.
//
// Some things that the interface promises are not reported by the hardware. Messages without
// payload, which SDP never sends, report them. Two of them end the channel in good order; Drain
// sends the first, because its completion says that everything before it has arrived. On iWARP,
// where the responder may not send first, the ends also exchange such messages to begin with; see
// exchangeRTR. Messages of one or two bytes return memory; see fill.go. More receive buffers are
// posted than were asked for, so that these messages find one; a message of SDP that needs one of
// these was sent without credit.
//
// Locks, in this order: tx.mu guards what is posted to send; reapMu the handling of completions;
// rx.mu the receive buffers; regions.mu what the peer may access; the cache's lock what is kept.
// hangOnce guards the end of the id. None is held while parked. The event loop's destroying comes
// after all of these.
type QueuePair struct {
	rdma.Base

	id   *cmID
	end  *C.struct_v_end
	rnic bool // iWARP

	ird, ord, mostORD int

	tx      sender
	rx      receiver
	regions regions
	kept    *cache       // registrations of this end's memory
	in      sleeper      // Wait
	room    sleeper      // WaitRoom
	using   sync.RWMutex // read-held by goroutines that park or use end

	chores atomic.Bool  // upkeep has something to do
	owed   atomic.Int32 // messages that the peer has asked for; see fill.go

	stop   atomic.Int32 // not 0: a goroutine that polls must look at everything again
	wanted atomic.Int32 // goroutines that want reapMu

	taken      atomic.Uint32 // how many events sleepers have taken from the channel,
	takenAtArm atomic.Uint32 // and the same when one was last requested

	// untaken says that something has completed after a request, and its event may still be on the
	// channel, or come. Until that is taken, devices that number requests by the events taken, such
	// as mlx5, ignore further ones.
	untaken atomic.Bool

	reapMu  sync.Mutex
	reaped  uint32 // how many completions were taken,
	armed   uint32 // the same when an event was last requested,
	arms    uint32 // and how often that was
	ready   fifo
	wcs     [32]C.struct_v_wc
	empties int   // empty messages that have arrived
	cause   error // why the queue pair has ended, by a completion
	flushed bool  // it is in the error state

	err      atomic.Pointer[failure]
	refusal  atomic.Pointer[failure] // err, once what had arrived before was taken
	gone     atomic.Bool             // the peer, or the device, is gone
	removed  atomic.Bool             // the device was removed
	offence  atomic.Bool             // the device has reported a violation by the peer
	leaving  atomic.Bool             // Close or Abort was called
	closing  atomic.Bool             // and no longer waits for the peer's device
	endOnce  sync.Once
	hangOnce sync.Once
}

var _ rdma.QueuePair = (*QueuePair)(nil)

type failure struct{ error }

// wire connects the ends for the race detector.
var wire rnic.Wire

const (
	// The queues take memory of each connection too. sendDepth has room for mostPayloads messages
	// with payload, for a message without payload for each of the peer's receive buffers, and for
	// keptBack.
	sendDepth   = 250 // work requests in the send queue
	mostBuffers = 128 // receive buffers that may be asked for
	recvDepth   = mostBuffers + reserve + mostSlack
	// reserve is how many receive buffers there are for the messages of the devices themselves:
	// endMessages, an ask, fills, and one more.
	reserve   = 6
	mostSlack = 8
	// endMessages is how many empty messages end a channel.
	endMessages = 2
	// rtrMessages is how many the end that dialled sends first on iWARP.
	rtrMessages = 2
	maxMessage  = 64 << 10
	mostInline  = 128
	mostReads   = 16 // IRD and ORD
)

// vectors spreads connections over a device's completion vectors, whose interrupts go to different
// processors.
var vectors atomic.Uint32

// newQueuePair makes a queue pair, with receive buffers posted, for an id that has a device. After
// an error the id remains the caller's.
func newQueuePair(id *cmID, cfg rdma.ChannelConfig) (*QueuePair, error) {
	var attr C.struct_v_device_attr
	if errno := C.v_query_device(id.c.verbs, &attr); errno != 0 {
		return nil, fmt.Errorf("verbs: query device limits: %w", syscall.Errno(errno))
	}
	if int(attr.max_qp_wr) < sendDepth || int(attr.max_cqe) < sendDepth+recvDepth {
		return nil, fmt.Errorf("verbs: device queues too small: %d work requests, %d completions", attr.max_qp_wr, attr.max_cqe)
	}
	q := &QueuePair{
		id:      id,
		end:     new(C.struct_v_end),
		rnic:    id.c.verbs.device.node_type == C.V_NODE_RNIC,
		ird:     min(cfg.IRD, mostReads, int(attr.max_qp_rd_atom)),
		mostORD: min(mostReads, int(attr.max_qp_init_rd_atom)),
	}
	q.rx.q = q
	q.regions.of = make(map[rdma.STag]region)
	if _, err := acquire(); err != nil { // it runs, because the id has it
		return nil, err
	}
	q.kept = newCache(local{q.end}, &locked)
	if err := q.open(cfg); err != nil {
		q.dismantle()
		id.e.release()
		return nil, err
	}
	id.q.Store(q)
	return q, nil
}

func (q *QueuePair) open(cfg rdma.ChannelConfig) error {
	if err := q.id.e.watch(q.id.c.verbs); err != nil {
		return err
	}
	vector := C.int(vectors.Add(1) % uint32(max(1, q.id.c.verbs.num_comp_vectors)))
	if errno := C.v_open_end(q.end, q.id.c, C.uint64_t(q.id.number), sendDepth, recvDepth, mostInline, vector); errno != 0 {
		if errno == C.int(syscall.ENOMEM) {
			return whyRegister(sendDepth*256, errno)
		}
		return fmt.Errorf("verbs: create queue pair: %w", syscall.Errno(errno))
	}
	if err := q.in.open(q, q.hasWork); err != nil {
		return err
	}
	if err := q.room.open(q, q.hasRoom); err != nil {
		return err
	}
	if err := q.tx.open(q); err != nil {
		return err
	}
	q.ready.items = make([]rdma.Completion, 0, recvDepth+2*mostReads)
	q.ProvideReceive(cfg.Buffers, cfg.BufSize)
	return q.failed()
}

// Limits returns what was agreed.
func (q *QueuePair) Limits() rdma.Limits {
	return rdma.Limits{
		MaxMessage: maxMessage, SendBatch: 16, IRD: q.ird, ORD: q.ord, Buffers: mostBuffers, Threshold: threshold,
		Shrinks: true, NeedsKeepalive: true,
	}
}

// threshold is the size from which RDMA Read is faster than copying, including registration.
const threshold = 256 << 10

// failed returns why the queue pair has ended, or nil.
func (q *QueuePair) failed() error {
	if f := q.err.Load(); f != nil {
		return f.error
	}
	return nil
}

// fail ends the queue pair; the first reason stands. While this end is leaving, the reason is
// net.ErrClosed, although the peer may disconnect first, when it has everything.
func (q *QueuePair) fail(err error) {
	if q.leaving.Load() {
		err = net.ErrClosed
	}
	if q.err.CompareAndSwap(nil, &failure{err}) {
		q.hangUp()
	}
	q.stop.Store(1)
	q.in.kick()
	q.room.kick()
}

// refused notes that receive buffers cannot be posted. The next reap makes the queue pair fail, after
// what had arrived: the caller may hold rx.mu, or be a reap.
func (q *QueuePair) refused(err error) {
	q.refusal.CompareAndSwap(nil, &failure{err})
	q.stop.Store(1)
	q.in.kick()
	q.room.kick()
}

// hangUp disconnects from the peer, and makes the device flush everything that is posted.
func (q *QueuePair) hangUp() {
	q.hangOnce.Do(func() { C.v_disconnect(q.id.c) })
}

var errRemoved = fmt.Errorf("verbs: RDMA device removed: %w", syscall.ENETDOWN)

// left handles a disconnection by the peer or the loss of the device. It first takes what had
// arrived before. It calls the kernel, so it runs on the dispatcher. It does not wait for finish,
// after which nothing is left to do.
func (q *QueuePair) left(device bool) {
	if !q.using.TryRLock() {
		return // finish frees everything
	}
	defer q.using.RUnlock()
	if q.end.qp == nil {
		return
	}
	if q.rnic { // first take what the device has reported about its queue pairs
		q.id.e.lookAsync(q.id.c.verbs)
	}
	if device {
		q.removed.Store(true)
	}
	q.reap()
	if !q.rnic && q.gaveUp() {
		q.offence.Store(true) // its completions are to come
	}
	q.gone.Store(true)
	q.hangUp()
	q.reap()
	if device {
		q.fail(errRemoved)
		return
	}
	q.in.kick()
	q.room.kick()
}

// gaveUp reports whether the device has ended the queue pair, which it does after a violation by the
// peer, before the peer disconnected. rxe tells the peer first, so the peer may be gone a moment
// before the queue pair is in the error state. A peer that leaves in good order does not wait for this.
func (q *QueuePair) gaveUp() bool {
	for range 10 {
		if C.v_gave_up(q.end) != 0 {
			return true
		}
		q.reapMu.Lock()
		orderly := q.empties > 0
		q.reapMu.Unlock()
		if orderly || q.leaving.Load() || q.removed.Load() {
			return false
		}
		time.Sleep(100 * time.Microsecond)
	}
	return C.v_gave_up(q.end) != 0
}

var errOverrun = fmt.Errorf("verbs: completion queue error: %w", syscall.ECONNABORTED)

// overrun ends the queue pair after the loss of its completion queue. It calls the kernel, so it runs
// on the dispatcher, and does not wait for finish.
func (q *QueuePair) overrun() {
	if q.using.TryRLock() {
		defer q.using.RUnlock()
		q.fail(errOverrun)
	}
}

// Lost ends the queue pair: a NIC notices that the peer's host is gone only when it sends.
func (q *QueuePair) Lost(err error) {
	q.using.RLock()
	defer q.using.RUnlock()
	q.reap() // what had arrived before
	q.fail(err)
}

// offended records that the device has reported a violation by the peer.
func (q *QueuePair) offended() {
	q.offence.Store(true)
	q.reconsider()
}

// reconsider makes Wait look again whether there is a reason for which the queue pair has ended.
func (q *QueuePair) reconsider() {
	q.stop.Store(1)
	q.in.kick()
}

// reasonLocked returns why the device has flushed what was posted. It returns nil if that cannot be
// told yet. The caller must hold reapMu.
func (q *QueuePair) reasonLocked() error {
	switch {
	case q.closing.Load():
		return net.ErrClosed
	case q.empties >= q.emptiesAtEnd():
		return io.EOF
	case q.removed.Load():
		return errRemoved
	case q.cause != nil:
		return q.cause
	case q.offence.Load(), !q.rnic && !q.gone.Load() && q.id.e.failed() == nil:
		// An InfiniBand device flushes by itself only after a violation by the peer.
		return violation("InfiniBand §9.7.5", "access to memory that is not exposed")
	case q.gone.Load(), q.id.e.failed() != nil:
		return os.NewSyscallError("read", syscall.ECONNRESET)
	}
	return nil // an event of rdma_cm will follow
}

// emptiesAtEnd is how many empty messages have arrived when the channel has ended.
func (q *QueuePair) emptiesAtEnd() int {
	switch {
	case !q.rnic:
		return endMessages
	case q.id.accepted:
		return endMessages + rtrMessages
	}
	return endMessages + 1
}

func violation(rule, format string, args ...any) error {
	return &rdma.ProtocolError{Rule: rule, What: fmt.Sprintf(format, args...)}
}

// Drain waits until the peer's device has everything; see rdma.QueuePair. On InfiniBand this is what
// the completion of work means. On iWARP it may only mean that the kernel has accepted it, as with
// siw. There an RDMA Read of zero bytes follows, which the peer's device answers after everything
// that it has received.
func (q *QueuePair) Drain(d time.Duration) error {
	deadline := time.Now().Add(d)
	if err := q.sendEnd(1); err != nil {
		return err
	}
	if !q.settle(deadline) {
		return os.ErrDeadlineExceeded
	}
	if q.rnic && q.ord > 0 && !q.tx.confirming {
		q.tx.confirming = true
		if err := q.confirm(); err != nil {
			return err
		}
		if !q.settle(deadline) {
			return os.ErrDeadlineExceeded
		}
	}
	return q.sendError()
}

// settle waits until the send queue is empty, or nothing will leave it any more. It returns false at
// the deadline.
func (q *QueuePair) settle(deadline time.Time) bool {
	return q.until(deadline, func() bool {
		return q.tx.tail.Load() == q.tx.posted.Load() || q.err.Load() != nil || q.gone.Load()
	})
}

// awaitDisconnect waits until the peer has disconnected too, which it does when it has everything.
// If an iWARP device disconnects while something arrives, such as a credit update, it resets its TCP
// connection, and what is still on the way to the peer is lost: there, the completion of work says
// only that the kernel has it.
func (q *QueuePair) awaitDisconnect(deadline time.Time) {
	if q.rnic {
		q.until(deadline, func() bool { return q.err.Load() != nil || q.gone.Load() })
	}
}

// until reaps until done returns true. It returns false at the deadline.
func (q *QueuePair) until(deadline time.Time, done func() bool) bool {
	return rnic.Until(deadline, func() bool {
		q.reap()
		return done()
	})
}

// closeTime is how long Close waits for the peer's device.
const closeTime = 250 * time.Millisecond

// Close ends the channel after what was sent; see rdma.QueuePair.
func (q *QueuePair) Close() error {
	q.finish(true)
	return nil
}

// Abort resets the channel.
func (q *QueuePair) Abort() error {
	q.finish(false)
	return nil
}

func (q *QueuePair) finish(kindly bool) {
	q.endOnce.Do(func() {
		q.leaving.Store(true)
		if kindly && q.sendEnd(endMessages) == nil {
			deadline := time.Now().Add(closeTime)
			q.settle(deadline)
			q.awaitDisconnect(deadline)
		}
		q.closing.Store(true)
		q.fail(net.ErrClosed)
		q.hangUp()
		q.id.q.Store(nil)
		q.using.Lock()
		q.dismantle()
		q.using.Unlock()
		q.id.destroy()
		q.id.e.release()
	})
}

// dismantle frees everything. No goroutine may be parked.
func (q *QueuePair) dismantle() {
	q.tx.mu.Lock()
	q.reapMu.Lock()
	q.rx.mu.Lock()
	q.regions.mu.Lock()
	defer q.tx.mu.Unlock()
	defer q.reapMu.Unlock()
	defer q.rx.mu.Unlock()
	defer q.regions.mu.Unlock()
	qp := q.end
	if q.in.f != nil { // otherwise the channel would block
		C.v_drain_events(qp)
	}
	q.in.close()
	q.room.close()
	if qp.qp != nil { // afterwards the device touches nothing
		q.id.e.destroying.RLock()
		C.v_destroy_qp(qp)
		q.id.e.destroying.RUnlock()
	}
	q.regions.closeLocked()
	q.tx.closeLocked()
	q.kept.close()
	q.rx.closeLocked()
	for _, c := range q.ready.items[q.ready.head:] { // no Poll will return these
		if c.Op == rdma.OpReceive {
			q.rx.dropLocked(c.Buffer.Owner.(*buffer))
		}
	}
	C.v_close_end(qp)
	*qp = C.struct_v_end{}
	q.ready = fifo{}
}

// exchangeRTR brings up a channel on iWARP, where the responder must not send before it has received
// something. The initiator sends an empty message, and the responder answers with one. Then, or if
// no answer arrives within rtrTime, the initiator sends another: as the responder, siw notices what
// it receives while it comes up only when it receives more.
func (q *QueuePair) exchangeRTR(ctx context.Context) error {
	if q.id.accepted {
		if err := q.awaitEmpty(ctx); err != nil {
			return err
		}
		return q.sendEmpty()
	}
	if err := q.sendEmpty(); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, rtrTime)
	defer cancel()
	_ = q.awaitEmpty(soon)
	if err := q.sendEmpty(); err != nil {
		return err
	}
	return q.awaitEmpty(ctx)
}

const rtrTime = 20 * time.Millisecond

// awaitEmpty waits for the first empty message.
func (q *QueuePair) awaitEmpty(ctx context.Context) error {
	stop := context.AfterFunc(ctx, q.in.kick)
	defer stop()
	came := func() bool {
		q.reapMu.Lock()
		defer q.reapMu.Unlock()
		return q.empties > 0 || ctx.Err() != nil || q.err.Load() != nil
	}
	defer func(former func() bool) { q.in.ready = former }(q.in.ready)
	q.in.ready = came
	for !came() {
		q.arm()
		q.in.park(q)
	}
	if err := q.failed(); err != nil {
		return err
	}
	return ctx.Err()
}

// fifo is a queue that keeps its memory when it is empty.
type fifo struct {
	items []rdma.Completion
	head  int
}

func (f *fifo) push(c rdma.Completion) { f.items = append(f.items, c) }

func (f *fifo) len() int { return len(f.items) - f.head }

func (f *fifo) take(wcs []rdma.Completion) int {
	n := copy(wcs, f.items[f.head:])
	clear(f.items[f.head : f.head+n])
	f.head += n
	if f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
	return n
}
