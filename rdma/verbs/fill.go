//go:build linux && cgo

package verbs

// #include "shim.h"
import "C"

// Receive buffers cannot be withdrawn from a device, and are filled in order. So large ones that are
// not needed any more would stay posted, and locked, until the peer sends as many messages. Instead
// this end asks the peer's device to fill them:
//
//	the buffers become smaller → ask →
//	                           ← fill, fill
//	two small ones are posted  → ask, until no large one is posted
//
// SDP knows nothing of these messages, which are shorter than any of its own: they use receive
// buffers of the reserve and no credit. Only the goroutine in Poll or Wait sends them, in upkeep.
const (
	fillText = "sdp fill"
	askText  = "sdp ask\x00"
	ownLen   = len(fillText)
	// fills is how many messages an ask stands for.
	fills = 2
)

// isOwn reports whether a message is one of the peer's device.
func isOwn(b []byte) bool {
	return len(b) == ownLen && (string(b) == fillText || string(b) == askText)
}

// largerLocked reports whether buffers are posted that are larger than they shall be.
func (r *receiver) largerLocked() bool {
	for _, b := range r.buffers {
		if b != nil && b.pool.size > r.size {
			return true
		}
	}
	return false
}

// heard handles a message of the peer's device. It returns the rule that the peer has violated, or
// nil. The caller must hold reapMu.
func (q *QueuePair) heard(ask bool) error {
	switch {
	case ask && q.owed.Load() > 0:
		return violation("docs/protocol.md, verbs", "it asked for messages again before it had got them")
	case ask:
		q.owed.Store(fills)
	case !q.rx.filledOne():
		return violation("docs/protocol.md, verbs", "it sent a message to fill a buffer without being asked")
	}
	q.chores.Store(true)
	q.in.kick()
	return nil
}

// filledOne counts a message that was asked for. It returns false if none was.
func (r *receiver) filledOne() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked == 0 {
		return false
	}
	r.asked--
	return true
}

// ask reports whether the peer is to be asked now.
func (r *receiver) ask() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.asked > 0 || !r.largerLocked() {
		return false
	}
	r.asked = fills
	return true
}

// upkeep sends what the ends have to tell each other about buffers. It may be called at any time; the
// caller must hold no lock.
func (q *QueuePair) upkeep() {
	q.chores.Store(false)
	tx := &q.tx
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if q.sendError() != nil || tx.ends > 0 {
		return
	}
	if !tx.roomFor(ownLen, false) {
		tx.starved.Store(true) // so the next completion makes Wait call upkeep again
		if !tx.roomFor(ownLen, false) {
			return
		}
	}
	send := func(text string) bool {
		mem, lkey := tx.take(ownLen)
		copy(mem, text)
		w := C.struct_v_send{addr: C.uint64_t(addressOf(mem)), len: C.uint32_t(ownLen), lkey: lkey, opcode: C.V_WR_SEND}
		if ownLen <= int(q.end.max_inline) {
			w.flags = C.V_SEND_INLINE
		}
		return q.addLocked(w, record{}, false) == nil
	}
	for q.owed.Load() > 0 && send(fillText) {
		q.owed.Add(-1)
	}
	if q.rx.ask() {
		send(askText)
	}
	_ = q.handLocked() // an error ends the queue pair
}
