package iwarp

import (
	"sync"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp/internal/nic"
)

// The sending path:
//
//  1. PostSend frames messages into a batch and writes it at once, if nothing is queued. If the
//     stream accepts only part of a message, the rest is copied to out; messages that were not
//     started are refused.
//  2. RDMA Writes and Read Responses are transfers (transfer.go). They are framed batch by batch,
//     directly from the memory, as long as the stream accepts them.
//  3. The rest waits until the stream has room, in WaitRoom or in the pump (carry.go).

// maxQueued bounds the bytes of messages without payload that wait in out. A peer's credit cannot
// ask for more.
const maxQueued = 256 << 10

// sender is the sending half of a queue pair. The mutex of its SendQueue guards all of it.
// While a goroutine carries, it is in the transport's waitWrite, and the others only add to
// the queue.
type sender struct {
	nic.SendQueue
	yielded bool // flushLocked stopped although the stream was not full
	silent  bool // a responder must not send before it has received something (RFC 5044 §7.1.2)
	// terminating: a Terminate is still to be written, although Err is set.
	terminating bool

	out       []byte  // FPDUs, the first perhaps in part; sent before everything else
	outHome   *[]byte // what outPool gave for out
	outHead   int
	writes    []*transfer
	responses []*transfer
	respond   bool // the next transfer is a response, so that neither kind starves the other

	sendMSN, readMSN, termMSN uint32
	sinkSTag                  uint32 // of the last RDMA Read; only the peer's response names it, so it need not be secret

	one [1][]byte // argument of the transport's write
}

// outLen is enough for the rest of one FPDU, followed by messages without payload.
const outLen = 72 << 10

var outPool = sync.Pool{New: func() any {
	b := make([]byte, 0, outLen)
	return &b
}}

// PostSend posts messages in order; see rdma.QueuePair.
func (q *QueuePair) PostSend(wrs []rdma.SendWR) (int, error) {
	tx := &q.tx
	tx.Lock()
	defer tx.Unlock()
	taken := 0
	for taken < len(wrs) {
		if tx.Err != nil {
			return taken, tx.Err
		}
		wr := &wrs[taken]
		switch {
		case tx.Busy() || tx.Carrying:
			if len(wr.Payload) > 0 && tx.Busy() {
				return taken, nil
			}
			if len(wr.Payload) == 0 && tx.queuedLocked() > maxQueued {
				return taken, rdma.ErrNoRoom
			}
			q.queueSendLocked(wr)
			taken++
		case untaggedLen+len(wr.Header)+len(wr.Payload) > q.p.maxULPDU:
			q.queueSendLocked(wr)
			taken++
			if _, err := q.flushLocked(); err != nil {
				return taken, err
			}
		default:
			n, err := q.sendBatchLocked(wrs[taken:])
			taken += n
			if err != nil {
				return taken, err
			}
		}
	}
	return taken, nil
}

// sendBatchLocked frames messages that fit in one FPDU each and writes them.
func (q *QueuePair) sendBatchLocked(wrs []rdma.SendWR) (int, error) {
	tx := &q.tx
	b := newBatch(q.p.CRC)
	defer b.free()
	for i := range wrs {
		wr := &wrs[i]
		if b.n == b.limit() || !b.fits(len(wr.Header), len(wr.Payload)) ||
			untaggedLen+len(wr.Header)+len(wr.Payload) > q.p.maxULPDU {
			break
		}
		s := sendSegment(wr, tx.sendMSN+1+uint32(i), 0, true)
		b.add(&s, wr.Header, wr.Payload)
	}
	written, err := q.t.write(b.close())
	if err != nil {
		return 0, q.sendFailedLocked(err)
	}
	n := b.n
	if written < b.total {
		n, tx.out = b.split(written, tx.spareLocked())
	}
	if n == 0 { // even a full stream accepts one message, so that there is always something to wait for
		n, tx.out = 1, b.appendRange(tx.out, 0, b.ends[0])
	}
	tx.sendMSN += uint32(n)
	tx.updateLocked()
	return n, nil
}

func sendSegment(wr *rdma.SendWR, msn uint32, mo int, last bool) segment {
	op := opSend
	switch {
	case wr.Solicited && wr.Invalidate != 0:
		op = opSendSolicitedInvalidate
	case wr.Solicited:
		op = opSendSolicited
	case wr.Invalidate != 0:
		op = opSendInvalidate
	}
	return segment{op: op, last: last, stag: uint32(wr.Invalidate), qn: queueSend, msn: msn, mo: uint32(mo)}
}

// queueSendLocked appends a message's FPDUs to the queue, in as many segments as it needs.
func (q *QueuePair) queueSendLocked(wr *rdma.SendWR) {
	q.tx.sendMSN++
	header, payload, mo := wr.Header, wr.Payload, 0
	for first := true; first || len(payload) > 0; first = false {
		n := min(len(payload), q.p.maxULPDU-untaggedLen-len(header))
		s := sendSegment(wr, q.tx.sendMSN, mo, n == len(payload))
		q.queueLocked(&s, header, payload[:n])
		mo += len(header) + n
		header, payload = nil, payload[n:]
	}
	q.tx.updateLocked()
}

// queueLocked appends one FPDU to what was posted before.
func (q *QueuePair) queueLocked(s *segment, header, payload []byte) {
	tx := &q.tx
	b := newBatch(q.p.CRC)
	b.add(s, header, payload)
	b.close()
	if k := len(tx.writes); k > 0 {
		w := tx.writes[k-1]
		w.next = b.appendRange(w.next, 0, b.total)
	} else {
		tx.out = b.appendRange(tx.spareLocked(), 0, b.total)
	}
	b.free()
}

// spareLocked returns out, with spare capacity.
func (tx *sender) spareLocked() []byte {
	if tx.out == nil {
		tx.outHome = outPool.Get().(*[]byte)
		return (*tx.outHome)[:0]
	}
	if tx.outHead > len(tx.out)/2 { // or a peer that reads as fast as this end answers makes it grow for ever
		n := copy(tx.out, tx.out[tx.outHead:])
		tx.out, tx.outHead = tx.out[:n], 0
	}
	return tx.out
}

// queuedLocked is how many bytes of FPDUs wait.
func (tx *sender) queuedLocked() int {
	n := len(tx.out) - tx.outHead
	for _, w := range tx.writes {
		n += len(w.next)
	}
	return n
}

// updateLocked sets busy after a change of the queue.
func (tx *sender) updateLocked() {
	tx.SetBusyLocked(tx.Err == nil && (tx.silent || len(tx.out) > 0 || len(tx.writes) > 0))
}

// sendFailedLocked ends the sending half. The receiving half continues until it finds its own
// end, so that everything that arrived is delivered.
func (q *QueuePair) sendFailedLocked(err error) error {
	q.tx.terminating = false
	q.tx.FailLocked(err)
	return q.tx.Err
}

// unsilence lets a responder send: the initiator's first FPDU has arrived.
func (q *QueuePair) unsilence() {
	tx := &q.tx
	tx.Lock()
	if tx.silent {
		tx.silent = false
		tx.updateLocked()
		tx.StartPumpLocked((*carrier)(q))
		tx.BroadcastLocked()
	}
	tx.Unlock()
}

// terminateLocked queues a Terminate and then fails the sending half. mayWrite must be false
// when another goroutine may be carrying.
func (q *QueuePair) terminateLocked(err error, ulpdu []byte, length int, mayWrite bool) {
	tx := &q.tx
	f, ok := err.(*fault)
	if !ok || tx.Err != nil {
		return
	}
	tx.termMSN++
	var raw [64]byte
	s := segment{op: opTerminate, last: true, qn: queueTerminate, msn: tx.termMSN}
	tx.writes, tx.responses = nil, nil // only what was started is finished after a violation
	q.queueLocked(&s, appendTerminate(raw[:0], f, ulpdu, length), nil)
	q.sendFailedLocked(&f.ProtocolError)
	tx.terminating = true
	q.terminated.Store(true)
	if mayWrite {
		q.flushLocked()
	}
	tx.StartPumpLocked((*carrier)(q))
	q.cq.mu.Lock()
	q.cq.err = &f.ProtocolError
	q.cq.mu.Unlock()
	q.wakePoller()
}

// complete hands a completion to the polling goroutine, and wakes it.
func (q *QueuePair) complete(c rdma.Completion) {
	q.cq.mu.Lock()
	q.cq.done = append(q.cq.done, c)
	q.cq.mu.Unlock()
	q.wakePoller()
}

// wakePoller makes the polling goroutine look at cq.
func (q *QueuePair) wakePoller() {
	q.cq.pending.Store(true)
	if q.rx.waiting.Load() {
		q.t.wakeRead()
	}
}
