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

// QueuePair is one end of a channel of the hardware's. It has no goroutine.
//
// What the interface promises and the hardware does not tell goes in messages
// without a byte, which SDP never sends: two of them end the channel in good
// order, of which Drain sends the first, since its completion says that
// everything before it has arrived. On iWARP, whose responder may not send first,
// the ends greet each other as well; see greet. They find receive buffers
// that are posted beyond what was asked for; so a message that needs one of
// those has come without credit.
//
// Locks, in this order: tx.mu guards what is posted to send; reapMu who takes
// completions; rx.mu the receive buffers; regions.mu what the peer may reach;
// the cache's what is kept; hang the id's end. None is held while parked.
type QueuePair struct {
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
	using   sync.RWMutex // read-held by who is parked, and by who has something to do with end

	stop   atomic.Int32 // not 0: who spins is to look at everything again
	wanted atomic.Int32 // goroutines that want reapMu

	reapMu  sync.Mutex
	ready   fifo
	wcs     [32]C.struct_v_wc
	bare    int   // messages without a byte that came
	cause   error // what ended the queue pair, as a completion says
	flushed bool  // it is in the state of error

	err      atomic.Pointer[failure]
	gone     atomic.Bool // the peer has left, or the device
	removed  atomic.Bool // the device has been taken away
	offence  atomic.Bool // the device says that the peer has done something
	leaving  atomic.Bool // Close or Abort was called
	closing  atomic.Bool // and waits no more for the peer's device
	endOnce  sync.Once
	hangOnce sync.Once
}

var (
	_ rdma.QueuePair = (*QueuePair)(nil)
	_ rdma.Shrinker     = (*QueuePair)(nil)
	_ rdma.PeerLossNotifier   = (*QueuePair)(nil)

	_ rdma.BusyPoller = (*QueuePair)(nil)
)

type failure struct{ error }

// wire connects the ends for the race detector.
var wire rnic.Wire

const (
	sendDepth = 1024 // pieces of work in the send queue
	recvDepth = 528  // receive buffers, posted
	// reserve is how many receive buffers there are for messages without a byte,
	// and slack how many may be free before they are posted, all at once.
	reserve = 4
	slack   = 8
	extra   = reserve + slack
	// farewells end a channel.
	farewells = 2
	// greetings are what the end that has dialled sends first on iWARP.
	greetings  = 2
	maxMessage = 64 << 10
	mostInline = 128
	mostReads  = 64 // IRD and ORD
)

// newQueuePair makes the verbs side of an id that has a device, with receive
// buffers posted. With an error the id remains the caller's.
func newQueuePair(id *cmID, cfg rdma.StepConfig) (*QueuePair, error) {
	var attr C.struct_v_device_attr
	if errno := C.v_query_device(id.c.verbs, &attr); errno != 0 {
		return nil, fmt.Errorf("verbs: the device does not tell its limits: %w", syscall.Errno(errno))
	}
	if int(attr.max_qp_wr) < sendDepth || int(attr.max_cqe) < sendDepth+recvDepth {
		return nil, fmt.Errorf("verbs: the device's queues are too short: %d pieces of work, %d completions", attr.max_qp_wr, attr.max_cqe)
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
	if _, err := acquire(); err != nil { // which runs, since the id has it
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

func (q *QueuePair) open(cfg rdma.StepConfig) error {
	if err := q.id.e.watch(q.id.c.verbs); err != nil {
		return err
	}
	if errno := C.v_open_end(q.end, q.id.c, C.uint64_t(q.id.number), sendDepth, recvDepth, mostInline); errno != 0 {
		if errno == C.int(syscall.ENOMEM) {
			return whyRegister(sendDepth*256, errno)
		}
		return fmt.Errorf("verbs: the device has no queue pair for us: %w", syscall.Errno(errno))
	}
	if err := q.tx.open(q); err != nil {
		return err
	}
	for _, s := range []*sleeper{&q.in, &q.room} {
		if err := s.open(q); err != nil {
			return err
		}
	}
	q.ready.items = make([]rdma.Completion, 0, recvDepth+2*mostReads)
	q.ProvideReceive(cfg.Buffers, cfg.BufSize)
	return q.failed()
}

// Limits returns what was agreed.
func (q *QueuePair) Limits() rdma.Limits {
	return rdma.Limits{MaxMessage: maxMessage, SendBatch: 16, IRD: q.ird, ORD: q.ord, Buffers: recvDepth - extra, Threshold: threshold}
}

// threshold is where RDMA Read overtakes copying, registration included.
const threshold = 256 << 10

// failed returns why the queue pair has ended, or nil.
func (q *QueuePair) failed() error {
	if f := q.err.Load(); f != nil {
		return f.error
	}
	return nil
}

// fail ends the queue pair: the first reason stands. While this end leaves, that is
// net.ErrClosed, though the peer may hang up first, when it has all.
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

// hangUp tells the peer's rdma_cm, and has the device give up all that is
// posted.
func (q *QueuePair) hangUp() {
	q.hangOnce.Do(func() { C.v_disconnect(q.id.c) })
}

var errRemoved = fmt.Errorf("verbs: the RDMA device was removed: %w", syscall.ENETDOWN)

// left takes in that the peer has hung up, or that the device has gone. What had
// come before is found first. It calls the kernel, so the dispatcher calls it, and it
// does not wait for finish, which needs nothing of it any more.
func (q *QueuePair) left(device bool) {
	if !q.using.TryRLock() {
		return // finish gives everything back
	}
	defer q.using.RUnlock()
	if q.end.qp == nil {
		return
	}
	if q.rnic { // what the device says of the queue pairs on it comes first
		q.id.e.lookAsync(q.id.c.verbs)
	}
	if device {
		q.removed.Store(true)
	}
	q.reap()
	if !q.rnic && C.v_gave_up(q.end) != 0 {
		q.offence.Store(true) // before the peer hung up, and has yet to tell of what was posted
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

// Lost ends the queue pair: a NIC notices that the peer's host is gone only when it
// sends.
func (q *QueuePair) Lost(err error) {
	q.using.RLock()
	defer q.using.RUnlock()
	q.reap() // what has come before
	q.fail(err)
}

// offended takes in what the device says of the peer.
func (q *QueuePair) offended() {
	q.offence.Store(true)
	q.stop.Store(1)
	q.in.kick()
}

// reason is why the device has given up what was posted; nil if that is not to be
// told yet. Called with reapMu held.
func (q *QueuePair) reason() error {
	switch {
	case q.closing.Load():
		return net.ErrClosed
	case q.bare >= q.goodbye():
		return io.EOF
	case q.removed.Load():
		return errRemoved
	case q.cause != nil:
		return q.cause
	case q.offence.Load(), !q.rnic && !q.gone.Load():
		// An InfiniBand device gives up by itself for what the peer does only.
		return violation("InfiniBand §9.7.5", "it reached for memory that is not exposed to it")
	case q.gone.Load():
		return os.NewSyscallError("read", syscall.ECONNRESET)
	}
	return nil // rdma_cm is about to tell
}

// goodbye is how many messages without a byte end the channel.
func (q *QueuePair) goodbye() int {
	switch {
	case !q.rnic:
		return farewells
	case q.id.accepted:
		return farewells + greetings
	}
	return farewells + 1
}

func violation(rule, format string, args ...any) error {
	return &rdma.ProtocolError{Rule: rule, What: fmt.Sprintf(format, args...)}
}

// Drain waits until the peer's device has everything; see rdma.QueuePair. That is what
// it means on InfiniBand that work is complete. On iWARP the kernel may only have taken
// it, in siw's case, so there an RDMA Read of nothing follows, which the peer's device
// answers behind all that it has got.
func (q *QueuePair) Drain(d time.Duration) error {
	deadline := time.Now().Add(d)
	if err := q.farewell(1); err != nil {
		return err
	}
	if !q.settle(deadline) {
		return os.ErrDeadlineExceeded
	}
	if q.rnic && q.ord > 0 && !q.tx.fenced {
		q.tx.fenced = true
		if err := q.fence(); err != nil {
			return err
		}
		if !q.settle(deadline) {
			return os.ErrDeadlineExceeded
		}
	}
	return q.sendError()
}

// settle waits until nothing is in the send queue, or nothing will leave it any
// more; false when that takes too long.
func (q *QueuePair) settle(deadline time.Time) bool {
	return q.until(deadline, func() bool {
		return q.tx.tail.Load() == q.tx.posted.Load() || q.err.Load() != nil || q.gone.Load()
	})
}

// part waits until the peer has hung up too, which it does when it has all. An iWARP
// device that leaves while something comes, a word about credit for instance, resets
// its TCP connection, and with it what is still on the way to the peer: that work is
// complete says there only that the kernel has it.
func (q *QueuePair) part(deadline time.Time) {
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

// Close ends the channel behind what was sent; see rdma.QueuePair.
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
		if kindly && q.farewell(farewells) == nil {
			deadline := time.Now().Add(closeTime)
			q.settle(deadline)
			q.part(deadline)
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

// dismantle gives everything back. Nobody is parked any more.
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
	q.in.close()
	q.room.close()
	if qp.qp != nil {
		C.v_drain_events(qp)
	}
	if qp.qp != nil { // the device touches nothing behind this
		C.v_destroy_qp(qp)
	}
	q.regions.close()
	q.tx.close()
	q.kept.close()
	q.rx.close()
	for _, c := range q.ready.items[q.ready.head:] { // which nobody will ask for
		if c.Op == rdma.OpReceive {
			q.rx.drop(c.Buffer.Owner.(*buffer))
		}
	}
	C.v_close_end(qp)
	*qp = C.struct_v_end{}
	q.ready = fifo{}
}

// greet brings a channel up on iWARP, whose responder may not send before it has
// heard from the other end. That says something, and the responder answers. It
// says something again then, or if there is no answer for greetTime: what siw gets
// while it comes up, as the responder, it notices with the next that it gets.
func (q *QueuePair) greet(ctx context.Context) error {
	if q.id.accepted {
		if err := q.awaitBare(ctx); err != nil {
			return err
		}
		return q.say()
	}
	if err := q.say(); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, greetTime)
	defer cancel()
	_ = q.awaitBare(soon)
	if err := q.say(); err != nil {
		return err
	}
	return q.awaitBare(ctx)
}

const greetTime = 20 * time.Millisecond

// awaitBare waits for the first message without a byte.
func (q *QueuePair) awaitBare(ctx context.Context) error {
	stop := context.AfterFunc(ctx, q.in.kick)
	defer stop()
	came := func() bool {
		q.reapMu.Lock()
		defer q.reapMu.Unlock()
		return q.bare > 0 || ctx.Err() != nil || q.err.Load() != nil
	}
	for !came() {
		q.arm()
		q.in.park(q, came)
	}
	if err := q.failed(); err != nil {
		return err
	}
	return ctx.Err()
}

// fifo is a queue that keeps its memory when it runs empty.
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
