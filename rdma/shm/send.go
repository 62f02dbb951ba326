//go:build linux

package shm

import (
	"encoding/binary"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
)

// The way out.
//
//  1. PostSend copies messages into the ring, and wakes the peer if it sleeps, at
//     the end and every 32 KB, so that the peer copies while we do.
//  2. A message with payload for which there is no room is refused: the device
//     is Busy until there is. One without payload, and what RDMA Reads and
//     Writes ask for, goes to a queue, out, then.
//  3. The queue waits for room in WaitRoom, or in the pump, a goroutine that
//     exists only while there is something in it and nobody is in WaitRoom.

const (
	tellEvery = 32 << 10
	// maxQueued bounds the bytes in the queue. A peer's credit cannot ask for
	// more.
	maxQueued = 256 << 10
	// maxWrites is how many RDMA Writes may be outstanding.
	maxWrites = 1024
)

// sender is the sending half of a queue pair. mu guards all of it but the atomic
// fields. carrying is the right to park until there is room. Who sits is told of
// its end, and of err.
type sender struct {
	mu       sync.Mutex
	carrying bool
	woken    bool // WakeRoom was called
	spin     spin.Room
	seat     seat
	ring     producer
	err      error

	out  []byte        // records that found no room, whole
	owed atomic.Uint64 // the peer's Reads of which the answer is in out, a bit for each slot; written under mu
	want int32         // bytes of a record that was refused; 0: none since there was room
	most int32         // bytes that the last message may have in the end, if it is open

	needs atomic.Uint64 // the position of head at which to get up
	busy  atomic.Bool   // out or want

	writesPosted uint32 // RDMA Writes

	pump sync.WaitGroup
}

// Busy reports that a message with payload would be refused now.
func (q *QueuePair) Busy() bool { return q.tx.busy.Load() }

// PostSend posts messages in order; see rdma.QueuePair.
func (q *QueuePair) PostSend(wrs []rdma.SendWR) (int, error) {
	tx := &q.tx
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.err != nil {
		return 0, tx.err
	}
	if tx.busy.Load() {
		if err := q.flush(); err != nil {
			return 0, err
		}
	}
	p := &tx.ring
	taken := 0
	var err error
	for ; taken < len(wrs); taken++ {
		wr := &wrs[taken]
		kind, n := recordSend, len(wr.Header)+len(wr.Payload)
		if wr.Invalidate != 0 {
			kind, n = recordInvalidate, n+8
		}
		room := len(tx.out) == 0
		if room {
			if room, err = p.fits(space(n)); err != nil {
				q.sendFailed(err)
				break
			}
		}
		if !room {
			if len(wr.Payload) > 0 {
				tx.want = int32(space(n))
				break
			}
			if len(tx.out) > maxQueued {
				err = rdma.ErrNoRoom
				break
			}
			q.queueSend(wr, kind, n)
			continue
		}
		switch {
		case wr.Invalidate != 0:
			var s [8]byte
			binary.NativeEndian.PutUint32(s[:], uint32(wr.Invalidate))
			p.put(kind, s[:], wr.Header, wr.Payload)
		case wr.Most > n && taken == len(wrs)-1:
			p.putOpen(wr.Header, wr.Payload)
			tx.most = int32(min(wr.Most, maxMessage))
		default:
			p.put(kind, wr.Header, wr.Payload)
		}
		p.sent += uint64(len(wr.Payload))
		if p.untold >= tellEvery {
			q.tell()
		}
	}
	q.tell()
	if len(tx.out) > 0 || tx.want > 0 {
		q.update()
	}
	return taken, err
}

// Append adds b to the last message; see rdma.Appender.
func (q *QueuePair) Append(b []byte) bool {
	tx := &q.tx
	tx.mu.Lock()
	defer tx.mu.Unlock()
	p := &tx.ring
	if p.open == 0 || tx.err != nil || len(tx.out) > 0 || int(p.open)+len(b) > int(tx.most) || !p.grown(b) {
		return false
	}
	p.sent += uint64(len(b))
	if p.asleep() {
		q.wakePeer()
	}
	return true
}

// Width returns how long the next message may be; see rdma.Narrow. Long ones go through
// the big ring, for which the budget may have no room.
func (q *QueuePair) Width(n int) int {
	if n <= narrow {
		return n
	}
	tx := &q.tx
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.err == nil && tx.ring.atSmall() {
		if !tx.ring.widen() {
			return narrow
		}
		q.tell()
	}
	return n
}

// narrow is the longest message that goes through the small ring, after an STag.
const narrow = smallRecord - headerLen - 8

// Sent returns how many bytes of payload have been posted and appended; see
// rdma.Appender.
func (q *QueuePair) Sent() uint64 {
	q.tx.mu.Lock()
	defer q.tx.mu.Unlock()
	return q.tx.ring.sent
}

// tell wakes the peer, if it sleeps, for what has been put. Called with mu held.
func (q *QueuePair) tell() {
	if q.tx.ring.tell() {
		q.wakePeer()
	}
}

// wakePeer wakes the peer's end, which sleeps until something comes.
func (q *QueuePair) wakePeer() {
	q.mine().rang.Store(int64(spin.Clock()))
	q.bell.ring()
}

// queueSend appends a message to the queue.
func (q *QueuePair) queueSend(wr *rdma.SendWR, kind, n int) {
	tx := &q.tx
	tx.out = binary.NativeEndian.AppendUint64(tx.out, header(kind, n))
	if wr.Invalidate != 0 {
		tx.out = binary.NativeEndian.AppendUint64(tx.out, 0)
		binary.NativeEndian.PutUint32(tx.out[len(tx.out)-8:], uint32(wr.Invalidate))
	}
	tx.out = append(tx.out, wr.Header...)
	tx.out = padded(append(tx.out, wr.Payload...))
}

// padded appends zeros to a multiple of 8.
func padded(b []byte) []byte {
	for len(b)%8 != 0 {
		b = append(b, 0)
	}
	return b
}

// emit sends a record of the device's own, at once or through the queue, and
// reports whether it is queued. Called with mu held; who may not go to WaitRoom
// calls startPump afterwards.
func (q *QueuePair) emit(kind int, body []byte) (queued bool) {
	tx := &q.tx
	if tx.err != nil {
		return false
	}
	room := len(tx.out) == 0
	if room {
		var err error
		if room, err = tx.ring.fits(space(len(body))); err != nil {
			q.sendFailed(err)
			return false
		}
	}
	if room {
		tx.ring.put(kind, body)
		q.tell()
		return false
	}
	tx.out = binary.NativeEndian.AppendUint64(tx.out, header(kind, len(body)))
	tx.out = padded(append(tx.out, body...))
	q.update()
	return true
}

// flush moves what is queued into the ring, as far as there is room, and sees
// whether the device is Busy. Called with mu held.
func (q *QueuePair) flush() error {
	tx := &q.tx
	for len(tx.out) > 0 {
		kind, length := tx.queuedFirst()
		n := space(length)
		room, err := tx.ring.fits(n)
		if err != nil {
			return q.sendFailed(err)
		}
		if !room {
			break
		}
		body := tx.out[headerLen : headerLen+length]
		if kind == recordGrant { // before the peer can see it, and say that it has
			tx.owed.And(^(1 << native.Uint32(body)))
		}
		tx.ring.put(kind, body)
		if tx.out = tx.out[n:]; len(tx.out) == 0 {
			tx.out = nil
		}
	}
	q.tell()
	if len(tx.out) == 0 && tx.want > 0 {
		// Refused once, the sender comes back when it is worth it.
		if err := tx.ring.look(); err != nil {
			return q.sendFailed(err)
		}
		if tx.ring.free() >= max(int(tx.want), len(tx.ring.ring)/2) {
			tx.want = 0
		}
	}
	q.update()
	return nil
}

// queuedFirst is what the first record of the queue is.
func (tx *sender) queuedFirst() (kind, length int) {
	h := binary.NativeEndian.Uint64(tx.out)
	return int(h >> lengthBits), int(h & (1<<lengthBits - 1))
}

// update tells the atomic fields of a change of out or want. Called with mu held.
func (q *QueuePair) update() {
	tx := &q.tx
	p := &tx.ring
	need := int(tx.want)
	if len(tx.out) > 0 {
		_, length := tx.queuedFirst()
		need = space(length)
	}
	// With head at pos + need - len(ring), so many bytes are free; half a ring is
	// worth getting up for.
	need = max(need, len(p.ring)/2)
	tx.needs.Store(max(p.pos+uint64(need), uint64(len(p.ring))) - uint64(len(p.ring)))
	tx.busy.Store(tx.err == nil && (len(tx.out) > 0 || tx.want > 0))
}

// roomy reports that there is room for what waits, or nothing to wait for. Any
// goroutine may call it that keeps the memory from going away.
func (q *QueuePair) roomy() bool {
	return !q.tx.busy.Load() || q.mine().head.Load() >= q.tx.needs.Load() ||
		q.theirs().state.Load() != stateOpen || q.closing.Load()
}

// WaitRoom parks until the device is not Busy; see rdma.QueuePair.
func (q *QueuePair) WaitRoom() error {
	tx := &q.tx
	tx.mu.Lock()
	defer tx.mu.Unlock()
	for {
		switch {
		case tx.err != nil:
			return tx.err
		case tx.woken:
			tx.woken = false
			return nil
		case !tx.busy.Load():
			return nil
		case tx.carrying:
			tx.seat.wait(&tx.mu)
		default:
			q.carry()
			if len(tx.out) > 0 {
				q.startPump()
			}
		}
	}
}

// carry parks until there is room, and uses it. Called and returns with mu held.
func (q *QueuePair) carry() {
	tx := &q.tx
	if q.flush() != nil || !tx.busy.Load() {
		return
	}
	tx.carrying = true
	tx.mu.Unlock()
	if !tx.spin.Spin(func() bool { return q.roomy() || q.bell.out.woken.Load() }) {
		q.bell.park(&q.bell.out)
	}
	q.bell.out.woken.Store(false)
	tx.mu.Lock()
	tx.carrying = false
	if tx.err == nil {
		if err := q.ended(); err != nil {
			q.sendFailed(broken(err))
		}
	}
	if tx.err == nil {
		q.flush()
	}
	tx.seat.tell()
}

// broken is what the end of the peer means to who sends.
func broken(err error) error {
	if _, ok := err.(*rdma.ProtocolError); ok {
		return err
	}
	return os.NewSyscallError("write", syscall.EPIPE)
}

// WakeRoom makes WaitRoom return; see rdma.QueuePair.
func (q *QueuePair) WakeRoom() {
	tx := &q.tx
	tx.mu.Lock()
	tx.woken = true
	carrying := tx.carrying
	tx.seat.tell()
	tx.mu.Unlock()
	if carrying {
		q.bell.wake(&q.bell.out)
	}
}

// Flush has the pump carry what is queued.
func (q *QueuePair) Flush() {
	q.tx.mu.Lock()
	q.startPump()
	q.tx.mu.Unlock()
}

// startPump starts the pump if something is queued and nobody carries it. Called
// with mu held.
func (q *QueuePair) startPump() {
	tx := &q.tx
	if tx.err != nil || tx.carrying {
		return
	}
	if tx.want > 0 || len(tx.out) > 0 {
		if q.flush() != nil {
			return
		}
	}
	if len(tx.out) == 0 {
		return
	}
	tx.carrying = true // before the goroutine runs, so that there is one only
	tx.pump.Go(func() {
		tx.mu.Lock()
		defer tx.mu.Unlock()
		tx.carrying = false
		for len(tx.out) > 0 && tx.err == nil && !tx.carrying {
			q.carry()
		}
		tx.seat.tell()
	})
}

// sendFailed ends the sending half, and all of it if the peer has broken a rule.
// Called with mu held.
func (q *QueuePair) sendFailed(err error) error {
	tx := &q.tx
	if tx.err != nil {
		return tx.err
	}
	tx.err, tx.out, tx.want = err, nil, 0
	if r := q.asked.Load(); r != nil {
		r.writes = nil
	}
	tx.busy.Store(false)
	tx.seat.tell()
	if f, ok := err.(*rdma.ProtocolError); ok {
		q.mine().state.CompareAndSwap(stateOpen, stateTerminated)
		q.fault.CompareAndSwap(nil, f)
		q.bell.ring()
		q.bell.rouseAll()
	}
	return tx.err
}
