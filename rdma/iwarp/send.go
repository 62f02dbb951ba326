package iwarp

import (
	"sync"
	"sync/atomic"

	"github.com/gosdp/gosdp/rdma"
)

// The way out.
//
//  1. PostSend frames messages into a batch and writes it at once, if nothing
//     waits before them. What the stream does not take of a message that was
//     started is copied to out; messages that were not started are refused.
//  2. RDMA Writes and Read Responses are transfers (transfer.go): they are
//     framed batch by batch from the memory itself, for as long as the stream
//     takes them.
//  3. What is left waits for the stream to have room (room.go): in WaitRoom, or
//     in the pump, a goroutine that exists only while there is something left
//     and nobody is in WaitRoom.

// maxQueued bounds the bytes of messages without payload that wait in out. A
// peer's credit cannot ask for more.
const maxQueued = 256 << 10

// sender is the sending half of a queue pair.
//
// mu guards all of it. pumping is the right to be in the transport's waitWrite:
// who has it set may drop mu meanwhile, and nobody else writes to the transport
// then, but adds to the queue. cond tells of the end of pumping, of the first
// FPDU from the peer, and of err.
type sender struct {
	mu      sync.Mutex
	cond    sync.Cond
	pumping bool
	woken   bool // WakeRoom was called
	inRoom  bool // WaitRoom is in the transport
	wanted  int  // calls in WaitRoom: Read Responses make way for them
	yielded bool // flush left off though the stream was not full
	silent  bool // a responder that has heard nothing may not speak (RFC 5044 §7.1.2)
	err     error
	// lastWords: a Terminate is still to be written, though err is set.
	lastWords bool

	out       []byte  // FPDUs, or the rest of one; before everything else
	outHome   *[]byte // where out's memory came from in the pool
	outHead   int
	writes    []*transfer
	responses []*transfer
	respond   bool // a response is next, so that neither kind starves the other

	sendMSN, readMSN, termMSN uint32
	busy                      atomic.Bool
	pump                      sync.WaitGroup
	one                       [1][]byte // argument of the transport's write
}

// outLen is the memory for the rest of one FPDU, with room for messages without
// payload behind it.
const outLen = 72 << 10

var outPool = sync.Pool{New: func() any {
	b := make([]byte, 0, outLen)
	return &b
}}

// Busy reports that a message with payload would be refused now.
func (q *QueuePair) Busy() bool { return q.tx.busy.Load() }

// PostSend posts messages in order; see rdma.QueuePair.
func (q *QueuePair) PostSend(wrs []rdma.SendWR) (int, error) {
	tx := &q.tx
	tx.mu.Lock()
	defer tx.mu.Unlock()
	taken := 0
	for taken < len(wrs) {
		if tx.err != nil {
			return taken, tx.err
		}
		wr := &wrs[taken]
		switch {
		case tx.busy.Load() || tx.pumping:
			if len(wr.Payload) > 0 && tx.busy.Load() {
				return taken, nil
			}
			if len(wr.Payload) == 0 && tx.queued() > maxQueued {
				return taken, rdma.ErrNoRoom
			}
			q.queueSend(wr)
			taken++
		case untaggedLen+len(wr.Header)+len(wr.Payload) > q.p.maxULPDU:
			q.queueSend(wr)
			taken++
			if _, err := q.flush(); err != nil {
				return taken, err
			}
		default:
			n, err := q.sendBatch(wrs[taken:])
			taken += n
			if err != nil {
				return taken, err
			}
		}
	}
	return taken, nil
}

// sendBatch frames messages that fit in one FPDU each and writes them.
func (q *QueuePair) sendBatch(wrs []rdma.SendWR) (int, error) {
	tx := &q.tx
	b := newBatch(q.p.crc)
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
		return 0, q.sendFailed(err)
	}
	n := b.n
	if written < b.total {
		n, tx.out = b.split(written, tx.room())
	}
	if n == 0 { // a full stream still takes one message, so that there is always something to wait for
		n, tx.out = 1, b.appendRange(tx.out, 0, b.ends[0])
	}
	tx.sendMSN += uint32(n)
	tx.update()
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

// queueSend appends a message's FPDUs to the queue, in as many segments as it
// needs.
func (q *QueuePair) queueSend(wr *rdma.SendWR) {
	q.tx.sendMSN++
	header, payload, mo := wr.Header, wr.Payload, 0
	for first := true; first || len(payload) > 0; first = false {
		n := min(len(payload), q.p.maxULPDU-untaggedLen-len(header))
		s := sendSegment(wr, q.tx.sendMSN, mo, n == len(payload))
		q.queue(&s, header, payload[:n])
		mo += len(header) + n
		header, payload = nil, payload[n:]
	}
	q.tx.update()
}

// queue appends one FPDU behind all that was posted before.
func (q *QueuePair) queue(s *segment, header, payload []byte) {
	tx := &q.tx
	b := newBatch(q.p.crc)
	b.add(s, header, payload)
	b.close()
	if k := len(tx.writes); k > 0 {
		w := tx.writes[k-1]
		w.behind = b.appendRange(w.behind, 0, b.total)
	} else {
		tx.out = b.appendRange(tx.room(), 0, b.total)
	}
	b.free()
}

// room returns out, with memory behind it.
func (tx *sender) room() []byte {
	if tx.out == nil {
		tx.outHome = outPool.Get().(*[]byte)
		return (*tx.outHome)[:0]
	}
	return tx.out
}

// queued is how many bytes of FPDUs wait.
func (tx *sender) queued() int {
	n := len(tx.out) - tx.outHead
	for _, w := range tx.writes {
		n += len(w.behind)
	}
	return n
}

// update sets busy after a change of the queue.
func (tx *sender) update() {
	if busy := tx.err == nil && (tx.silent || len(tx.out) > 0 || len(tx.writes) > 0); busy != tx.busy.Load() {
		tx.busy.Store(busy)
	}
}

// sendFailed ends the sending half. The receiving half goes on until it finds
// its own end, so that what has arrived is delivered.
func (q *QueuePair) sendFailed(err error) error {
	tx := &q.tx
	tx.lastWords = false
	if tx.err == nil {
		tx.err = err
		tx.busy.Store(false)
		tx.cond.Broadcast()
	}
	return tx.err
}

// heard lets a responder speak: the initiator's first FPDU has come.
func (q *QueuePair) heard() {
	tx := &q.tx
	tx.mu.Lock()
	if tx.silent {
		tx.silent = false
		tx.update()
		q.startPump()
		tx.cond.Broadcast()
	}
	tx.mu.Unlock()
}

// terminate queues a Terminate for a violation and ends the sending half behind
// it. Called with mu held, and from within flush or by whom nobody is pumping
// beside only if mayWrite.
func (q *QueuePair) terminate(err error, ulpdu []byte, length int, mayWrite bool) {
	tx := &q.tx
	f, ok := err.(*fault)
	if !ok || tx.err != nil {
		return
	}
	tx.termMSN++
	var raw [64]byte
	s := segment{op: opTerminate, last: true, qn: queueTerminate, msn: tx.termMSN}
	tx.writes, tx.responses = nil, nil // nothing that was not started follows a violation
	q.queue(&s, appendTerminate(raw[:0], f, ulpdu, length), nil)
	q.sendFailed(&f.ProtocolError)
	tx.lastWords = true
	q.terminated.Store(true)
	if mayWrite {
		q.flush()
	}
	q.startPump()
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

// wakePoller has the polling goroutine look at cq.
func (q *QueuePair) wakePoller() {
	q.cq.some.Store(true)
	if q.rx.waiting.Load() {
		q.t.wakeRead()
	}
}
