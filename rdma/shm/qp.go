//go:build linux

package shm

import (
	"errors"
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

// QueuePair is one end of a channel through shared memory. It has no goroutine, except for the
// pump while messages wait for room in the ring and no call of WaitRoom carries them.
//
// Locks: Poll, Wait, and a PollRoom that receives hold rx.mu until they return, even while parked;
// it keeps Close from unmapping the memory. The mutex of tx guards the sending half, and is never
// held while parked.
// exposed.mu guards what the peer is reading. They are taken in this order; bell.mu comes last.
type QueuePair struct {
	way     int32 // the direction of the area that this end writes
	peerPID int32 // 0 if the peer's memory is out of reach
	area    *area
	link    *link // owns the socket and the area; nil: the queue pair owns them
	ird     uint8 // how many RDMA Reads of the peer may be outstanding
	ord     uint8 // and how many of this end

	bell    doorbell
	tx      sender
	rx      receiver
	regions rnic.Regions
	exposed exposures
	asked   atomic.Pointer[requests] // RDMA Reads and Writes of this end; nil: there were none

	fault   atomic.Pointer[rdma.ProtocolError] // a violation that the sending half has found
	closing atomic.Bool
	closed  sync.Once
}

// wire connects the ends for the race detector.
var wire rnic.Wire

var (
	_ rdma.QueuePair    = (*QueuePair)(nil)
	_ rdma.Finisher     = (*QueuePair)(nil)
	_ rdma.Appender     = (*QueuePair)(nil)
	_ rdma.BusyPoller   = (*QueuePair)(nil)
	_ rdma.Narrow       = (*QueuePair)(nil)
	_ rdma.ReadReporter = (*QueuePair)(nil)
)

// Config is what a caller wants of a queue pair.
type Config struct {
	IRD, ORD int // RDMA Reads that may be outstanding, of the peer and of this end; at most 64
}

const (
	maxMessage = 128 << 10
	maxBatch   = 16
)

// newQueuePair makes the end that writes the given direction of the area. It owns conn and the
// area. peer is the pid whose memory may be read, 0 if none may.
func newQueuePair(conn *os.File, a *area, way, peer int, cfg Config) (*QueuePair, error) {
	q := &QueuePair{way: int32(way), peerPID: int32(peer), area: a, ird: uint8(max(0, min(cfg.IRD, maxReads))), ord: uint8(max(0, min(cfg.ORD, maxReads)))}
	q.tx.Make()
	q.tx.ring = newProducer(a, way)
	q.rx.in = newConsumer(a, 1-way)
	return q, q.bell.init(q, conn)
}

// mine and theirs are the directions that this end and the peer write.
func (q *QueuePair) mine() *direction   { return &q.area.ctl.ways[q.way] }
func (q *QueuePair) theirs() *direction { return &q.area.ctl.ways[1-q.way] }

// Limits returns what was agreed. There is no threshold: copying a stream through the ring is
// faster than process_vm_readv at every size (docs/experiments.md).
func (q *QueuePair) Limits() rdma.Limits {
	return rdma.Limits{
		MaxMessage:    maxMessage,
		SendBatch:     maxBatch,
		IRD:           int(q.ird),
		ORD:           int(q.ord),
		ShortMessages: true,
		Predict:       true,
		Outlives:      true,
		Elastic:       true,
		BufferedOnly:  q.peerPID == 0,
	}
}

// Wake makes Wait return.
func (q *QueuePair) Wake() { q.bell.wake(&q.bell.in) }

// ended returns why the peer's end has ended, or nil. What it wrote before is in the ring.
func (q *QueuePair) ended() error {
	if f := q.fault.Load(); f != nil {
		return f
	}
	gone := q.bell.dead.Load() // read before the state, which a peer sets before it leaves
	if q.closing.Load() {
		return net.ErrClosed
	}
	switch state := q.theirs().state.Load(); state {
	case stateOpen:
	case stateClosed:
		return io.EOF
	case stateAborted:
		return os.NewSyscallError("read", syscall.ECONNRESET)
	case stateTerminated:
		return &rdma.TerminateError{}
	default:
		return violation("state", "invalid connection state %d", state)
	}
	if gone {
		return q.bell.why()
	}
	return nil
}

// meaningLocked returns what the end of the channel with err means to the program. If the
// peer's process ended without closing the channel, it is an end of file if its program had
// read everything, and a reset otherwise, as with TCP.
func (q *QueuePair) meaningLocked(err error) error {
	if errors.Is(err, syscall.ECONNRESET) && q.theirs().state.Load() == stateOpen && q.mine().state.Load() == stateOpen &&
		q.mine().read.Load() == q.tx.ring.sent {
		return io.EOF
	}
	return err
}

// ReportRead tells the peer's end how much the program has read; see
// rdma.ReadReporter. The counter has one writer.
func (q *QueuePair) ReportRead(n int) {
	read := &q.theirs().read
	read.Store(read.Load() + uint64(n))
}

// Shrink returns memory that an idle connection does not need; see rdma.Shrinker.
func (q *QueuePair) Shrink() {
	tx := &q.tx
	tx.Lock()
	defer tx.Unlock()
	if tx.Busy() {
		q.flushLocked() // there may be room by now, although no goroutine waits for it any more
	}
	// Records and senders that still wait do so for room in the present ring.
	if tx.Err != nil || len(tx.out) > 0 || tx.want > 0 {
		return
	}
	if err := tx.ring.shrink(); err != nil {
		q.sendFailedLocked(err)
	}
}

// Drain waits until everything that was posted is in the shared memory, which outlives this
// process, and until the peer has carried out this end's RDMA Writes, whose bytes do not outlive
// it; see rdma.QueuePair.
func (q *QueuePair) Drain(d time.Duration) error {
	var err error
	sent := rnic.Until(time.Now().Add(d), func() bool {
		var left bool
		left, err = q.unsent()
		return err != nil || !left
	})
	if !sent {
		return os.ErrDeadlineExceeded
	}
	return err
}

// Finish reports whether Drain has nothing to wait for, or the channel has ended; see
// rdma.Finisher.
func (q *QueuePair) Finish() (ended, done bool) {
	left, err := q.unsent()
	done = !left || err != nil
	return done, done
}

// unsent reports whether something has not left this process, and makes the pump carry it.
func (q *QueuePair) unsent() (bool, error) {
	tx := &q.tx
	tx.Lock()
	defer tx.Unlock()
	if tx.Err != nil {
		return false, tx.Err
	}
	tx.StartPumpLocked((*carrier)(q))
	left := len(tx.out) > 0 || q.mine().written.Load() != tx.writesPosted
	if left && (!q.bell.alive() || q.theirs().state.Load() != stateOpen) {
		q.sendFailedLocked(q.bell.why())
	}
	return left, tx.Err
}

// Close ends the channel after what was sent; see rdma.QueuePair.
func (q *QueuePair) Close() error { return q.end(stateClosed) }

// Abort resets the channel.
func (q *QueuePair) Abort() error { return q.end(stateAborted) }

// keeps reports whether the link may serve another connection.
func (q *QueuePair) keeps() bool {
	if q.link == nil || q.link.pool == nil || q.fault.Load() != nil || !q.bell.alive() {
		return false
	}
	state := q.theirs().state.Load()
	return state == stateOpen || state == stateClosed
}

func (q *QueuePair) end(state uint32) error {
	q.closed.Do(func() {
		q.closing.Store(true)
		tx := &q.tx
		tx.Lock()
		if len(tx.out) > 0 {
			state = stateAborted // some of it is lost
		}
		opened := q.mine().state.CompareAndSwap(stateOpen, state)
		q.sendFailedLocked(net.ErrClosed)
		tx.Unlock()
		q.regions.Close()
		q.exposed.close(q)
		if q.mine().idle.Swap(0)|q.theirs().full.Swap(0) != 0 { // the peer sleeps, and must see the state
			q.bell.ring()
		}
		keep := opened && state == stateClosed && q.keeps()
		if keep {
			q.bell.quit()
		} else {
			q.bell.close()
		}

		// When this goroutine has waited for these, no other uses the memory.
		tx.WaitPump()
		q.rx.mu.Lock()
		tx.Lock()
		for tx.Carrying {
			tx.WaitLocked()
		}
		tx.ring.giveUp()
		q.bell.unpair()
		_, broken := q.rx.err.(*rdma.ProtocolError)
		broken = broken || q.fault.Load() != nil // found while this end was closing
		q.rx.fail(net.ErrClosed)
		q.exposed.mu.Lock()
		if keep && broken {
			q.link.end()
		} else if keep {
			q.link.leave(q)
		} else {
			q.area.unmap()
		}
		q.exposed.mu.Unlock()
		tx.Unlock()
		q.rx.mu.Unlock()
	})
	return nil
}
