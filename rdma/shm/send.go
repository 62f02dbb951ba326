//go:build linux

package shm

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/internal/rnic"
)

// The sending path:
//
//  1. PostSend copies messages into the ring. It wakes the peer if that sleeps, at the end and
//     every 32 KB, so that the peer copies at the same time.
//  2. A message with payload for which there is no room is refused: the device is Busy until there
//     is room. A message without payload, and the records of RDMA Reads and Writes, are queued in
//     out.
//  3. The queue waits for room in WaitRoom or in the pump; see rnic.SendQueue.

const (
	tellEvery = 32 << 10
	// maxQueued bounds the bytes in the queue. A peer's credit cannot ask for more.
	maxQueued = 256 << 10
	// maxWrites is how many RDMA Writes may be outstanding.
	maxWrites = 1024
)

// sender is the sending half of a queue pair. The mutex of its SendQueue guards all of it, except
// the atomic fields.
type sender struct {
	rnic.SendQueue
	ring producer
	out  []byte        // whole records for which there was no room
	owed atomic.Uint64 // slots of the peer's Reads whose answers are in out, a bit each; written under the mutex

	needs        atomic.Uint64 // the position of head at which the carrier wakes up
	want         int32         // bytes of a record that was refused; 0: none since there was room
	most         int32         // bytes to which the last message may grow, if it is open
	writesPosted uint32        // RDMA Writes
	spin         spin.Room     // of PollRoom and the pump
}

// PostSend posts messages in order; see rdma.QueuePair.
func (q *QueuePair) PostSend(wrs []rdma.SendWR) (int, error) {
	tx := &q.tx
	tx.Lock()
	defer tx.Unlock()
	if tx.Err != nil {
		return 0, tx.Err
	}
	if tx.Busy() {
		if err := q.flushLocked(); err != nil {
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
		if len(wr.Payload) > 0 && q.left() { // what has no payload may go to nobody
			if err = q.ended(); err != nil {
				err = q.sendFailedLocked(broken(q.meaningLocked(err)))
				break
			}
		}
		room := len(tx.out) == 0
		if room {
			if room, err = p.fits(space(n)); err != nil {
				q.sendFailedLocked(err)
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
			q.queueSendLocked(wr, kind, n)
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
		if p.unannounced >= tellEvery {
			q.tellLocked()
		}
	}
	q.tellLocked()
	if len(tx.out) > 0 || tx.want > 0 {
		q.updateLocked()
	}
	return taken, err
}

// Append adds b to the last message; see rdma.Appender.
func (q *QueuePair) Append(b []byte) bool {
	tx := &q.tx
	tx.Lock()
	defer tx.Unlock()
	p := &tx.ring
	if p.open == 0 || tx.Err != nil || len(tx.out) > 0 || int(p.open)+len(b) > int(tx.most) || q.left() || !p.grown(b) {
		return false
	}
	p.sent += uint64(len(b))
	if p.asleep() {
		q.wakePeer()
	}
	return true
}

// Width returns how long the next message may be; see rdma.Narrow. Long messages need the big ring,
// for which the budget may not be enough.
func (q *QueuePair) Width(n int) int {
	if n <= narrow {
		return n
	}
	tx := &q.tx
	tx.Lock()
	defer tx.Unlock()
	if tx.Err == nil && tx.ring.atSmall() {
		if !tx.ring.widen() {
			return narrow
		}
		q.tellLocked()
	}
	return n
}

// narrow is the longest message that goes through the small ring after an STag.
const narrow = smallRecord - headerLen - 8

// Sent returns how many bytes of payload have been posted and appended; see
// rdma.Appender.
func (q *QueuePair) Sent() uint64 {
	q.tx.Lock()
	defer q.tx.Unlock()
	return q.tx.ring.sent
}

// tellLocked wakes the peer, if it sleeps, for the records that have been put.
func (q *QueuePair) tellLocked() {
	if q.tx.ring.tell() {
		q.wakePeer()
	}
}

// wakePeer wakes the peer's end, which sleeps until records arrive.
func (q *QueuePair) wakePeer() {
	q.mine().rang.Store(int64(spin.Clock()))
	q.bell.ring()
}

// queueSendLocked appends a message to the queue.
func (q *QueuePair) queueSendLocked(wr *rdma.SendWR, kind, n int) {
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

// emitLocked sends a record of the device's own, at once or through the queue, and reports
// whether it is queued. A caller that will not go to WaitRoom starts the pump afterwards.
func (q *QueuePair) emitLocked(kind int, body []byte) (queued bool) {
	tx := &q.tx
	if tx.Err != nil {
		return false
	}
	room := len(tx.out) == 0
	if room {
		var err error
		if room, err = tx.ring.fits(space(len(body))); err != nil {
			q.sendFailedLocked(err)
			return false
		}
	}
	if room {
		tx.ring.put(kind, body)
		q.tellLocked()
		return false
	}
	tx.out = binary.NativeEndian.AppendUint64(tx.out, header(kind, len(body)))
	tx.out = padded(append(tx.out, body...))
	q.updateLocked()
	return true
}

// flushLocked moves queued records into the ring, as far as there is room, and updates
// whether the device is Busy.
func (q *QueuePair) flushLocked() error {
	tx := &q.tx
	for len(tx.out) > 0 {
		kind, length := tx.firstQueuedLocked()
		n := space(length)
		room, err := tx.ring.fits(n)
		if err != nil {
			return q.sendFailedLocked(err)
		}
		if !room {
			break
		}
		body := tx.out[headerLen : headerLen+length]
		if kind == recordGrant { // before the peer can see it and answer
			tx.owed.And(^(1 << native.Uint32(body)))
		}
		tx.ring.put(kind, body)
		if tx.out = tx.out[n:]; len(tx.out) == 0 {
			tx.out = nil
		}
	}
	q.tellLocked()
	if len(tx.out) == 0 && tx.want > 0 {
		// A sender that was refused returns only for a useful amount of room.
		if err := tx.ring.look(); err != nil {
			return q.sendFailedLocked(err)
		}
		if tx.ring.free() >= max(int(tx.want), len(tx.ring.ring)/2) {
			tx.want = 0
		}
	}
	q.updateLocked()
	return nil
}

// firstQueuedLocked returns what the first record of the queue is.
func (tx *sender) firstQueuedLocked() (kind, length int) {
	h := binary.NativeEndian.Uint64(tx.out)
	return int(h >> lengthBits), int(h & (1<<lengthBits - 1))
}

// updateLocked sets needs and busy after a change of out or want.
func (q *QueuePair) updateLocked() {
	tx := &q.tx
	p := &tx.ring
	need := int(tx.want)
	if len(tx.out) > 0 {
		_, length := tx.firstQueuedLocked()
		need = space(length)
	}
	// When head is at pos + need - len(ring), need bytes are free. Less than half a ring is
	// not worth a wake-up.
	need = max(need, len(p.ring)/2)
	tx.needs.Store(max(p.pos+uint64(need), uint64(len(p.ring))) - uint64(len(p.ring)))
	tx.SetBusyLocked(tx.Err == nil && (len(tx.out) > 0 || tx.want > 0))
}

// hasRoom reports whether there is room for the first queued record, or nothing to wait for. The
// caller must keep the memory mapped.
func (q *QueuePair) hasRoom() bool {
	return !q.tx.Busy() || q.mine().head.Load() >= q.tx.needs.Load() ||
		q.theirs().state.Load() != stateOpen || q.closing.Load()
}

// carrier is the queue pair as its SendQueue sees it.
type carrier QueuePair

var _ rnic.Carrier = (*carrier)(nil)

// Busy, WaitRoom, WakeRoom and Flush are those of rdma.QueuePair.
func (q *QueuePair) Busy() bool      { return q.tx.Busy() }
func (q *QueuePair) WaitRoom() error { return q.tx.WaitRoom((*carrier)(q)) }
func (q *QueuePair) WakeRoom()       { q.tx.WakeRoom((*carrier)(q)) }
func (q *QueuePair) Flush()          { q.tx.Flush((*carrier)(q)) }

// CarryLocked waits until there is room in the ring, and uses it.
func (c *carrier) CarryLocked(forRoom bool) {
	q := (*QueuePair)(c)
	tx := &q.tx
	if q.flushLocked() != nil || !tx.Busy() {
		return
	}
	tx.BeginCarryLocked()
	if forRoom || !tx.spin.Spin(q.hasRoom) { // the caller of WaitRoom has polled
		q.bell.park(&q.bell.out)
	}
	q.bell.out.woken.Store(false)
	q.endCarry()
	if forRoom {
		tx.StartPumpLocked(c) // WaitRoom may return before the queue is empty
	}
}

// PollRoom is WaitRoom without parking; see rdma.RoomPoller.
func (q *QueuePair) PollRoom(receives bool) bool {
	look := q.hasRoom
	if receives {
		q.rx.mu.Lock()
		defer q.rx.mu.Unlock()
		look = q.hasRoomOrRecord
	}
	tx := &q.tx
	tx.Lock()
	defer tx.Unlock()
	if tx.Err != nil || tx.Carrying || q.flushLocked() != nil {
		return false // WaitRoom waits for the pump, or returns why nothing can be sent
	}
	if !tx.Busy() {
		return true
	}
	tx.BeginCarryLocked()
	found := tx.spin.Spin(look)
	q.endCarry()
	return found
}

// hasRoomOrRecord is hasRoom, or whether there is something for Poll. The caller must hold rx.mu.
func (q *QueuePair) hasRoomOrRecord() bool { return q.hasRoom() || q.rx.in.hasRecord() }

// endCarry ends carrying, moves the queue on, and leaves the mutex locked.
func (q *QueuePair) endCarry() {
	tx := &q.tx
	tx.EndCarry()
	if tx.Err == nil {
		if err := q.ended(); err != nil {
			q.sendFailedLocked(broken(q.meaningLocked(err)))
		}
	}
	if tx.Err == nil {
		q.flushLocked()
	}
}

// PendingLocked moves queued records into the ring, and reports whether some are left.
func (c *carrier) PendingLocked() bool {
	q := (*QueuePair)(c)
	tx := &q.tx
	if tx.Err != nil || tx.Busy() && q.flushLocked() != nil {
		return false
	}
	return len(tx.out) > 0
}

// WakeCarryLocked ends the parking at the doorbell.
func (c *carrier) WakeCarryLocked() { c.bell.wake(&c.bell.out) }

// left reports whether the peer's end has left. A goroutine that sends must not depend on another one
// that polls to find that.
func (q *QueuePair) left() bool { return q.theirs().state.Load() != stateOpen }

// broken returns the error of the sending half after the peer has ended with err.
func broken(err error) error {
	switch {
	case errors.Is(err, syscall.ECONNRESET):
		return os.NewSyscallError("write", syscall.ECONNRESET)
	case err == io.EOF, err == net.ErrClosed:
		return os.NewSyscallError("write", syscall.EPIPE)
	}
	return err
}

// sendFailedLocked ends the sending half, and the whole queue pair if the peer has violated a
// rule.
func (q *QueuePair) sendFailedLocked(err error) error {
	tx := &q.tx
	if !tx.FailLocked(err) {
		return tx.Err
	}
	tx.out, tx.want = nil, 0
	if r := q.asked.Load(); r != nil {
		r.writes = nil
	}
	if f, ok := err.(*rdma.ProtocolError); ok {
		q.mine().state.CompareAndSwap(stateOpen, stateTerminated)
		q.fault.CompareAndSwap(nil, f)
		q.bell.ring()
		q.bell.rouseAll()
	}
	return tx.Err
}
