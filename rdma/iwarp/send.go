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
//  2. RDMA Writes and Read Responses are transfers: they are framed batch by
//     batch from the memory itself, for as long as the stream takes them.
//  3. What is left waits for the stream to have room: in WaitRoom, or in the
//     pump, a goroutine that exists only while there is something left and
//     nobody is in WaitRoom.

// maxQueued bounds the bytes of messages without payload that wait in out. A
// peer's credit cannot ask for more.
const maxQueued = 256 << 10

// transfer is an RDMA Write of ours, or a Read Response that the peer has asked
// for, of which off bytes have been framed.
type transfer struct {
	op   opcode
	stag uint32 // the peer's buffer
	to   uint64
	size int
	off  int

	local  []byte  // Write: the caller's memory
	id     uint64  // Write: of the work request
	quiet  bool    // Write: no completion, it is the connection's RTR
	behind []byte  // Write: FPDUs posted after it
	src    *region // Read Response: our registered memory
	srcOff uint64
}

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

// PostRead posts an RDMA Read; see rdma.QueuePair.
func (q *QueuePair) PostRead(wr rdma.ReadWR) error {
	return q.postRead(wr, false)
}

func (q *QueuePair) postRead(wr rdma.ReadWR, quiet bool) error {
	tx := &q.tx
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.err != nil {
		return tx.err
	}
	if tx.queued() > maxQueued {
		return rdma.ErrNoRoom
	}
	sink, ok := q.reads.add(wr, quiet)
	if !ok {
		return rdma.ErrNoRoom
	}
	tx.readMSN++
	req := readRequest{sinkSTag: sink, size: uint32(len(wr.Local)), srcSTag: uint32(wr.STag), srcTO: wr.VA}
	var raw [readRequestLen]byte
	s := segment{op: opReadRequest, last: true, qn: queueRead, msn: tx.readMSN}
	q.queue(&s, req.appendTo(raw[:0]), nil)
	return q.start()
}

// PostWrite posts an RDMA Write; see rdma.QueuePair.
func (q *QueuePair) PostWrite(wr rdma.WriteWR) error {
	return q.postWrite(wr, false)
}

func (q *QueuePair) postWrite(wr rdma.WriteWR, quiet bool) error {
	tx := &q.tx
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.err != nil {
		return tx.err
	}
	if len(tx.writes) >= maxWrites {
		return rdma.ErrNoRoom
	}
	tx.writes = append(tx.writes, &transfer{
		op: opWrite, stag: uint32(wr.STag), to: wr.VA, size: len(wr.Local),
		local: wr.Local, id: wr.ID, quiet: quiet,
	})
	return q.start()
}

// maxWrites is how many RDMA Writes wait for the stream at most.
const maxWrites = 1024

// start writes what was just queued, as far as the stream takes it.
func (q *QueuePair) start() error {
	q.tx.update()
	if q.tx.pumping {
		return nil
	}
	_, err := q.flush()
	return err
}

// flushMost is how many bytes flush writes before it lets others have mu.
const flushMost = 1 << 20

// flush writes what is queued until nothing is left, which it reports, or the
// stream is full, or it has yielded. Called with mu held, by whom nobody else is
// pumping beside.
func (q *QueuePair) flush() (done bool, err error) {
	tx := &q.tx
	defer tx.update()
	tx.yielded = false
	if tx.silent {
		return false, nil
	}
	for moved := 0; ; {
		for len(tx.out) > tx.outHead {
			tx.one[0] = tx.out[tx.outHead:]
			n, err := q.t.write(tx.one[:])
			tx.one[0] = nil
			if err != nil {
				return false, q.sendFailed(err)
			}
			if tx.outHead += n; tx.outHead < len(tx.out) {
				return false, nil
			}
		}
		tx.recycle()
		next := tx.next()
		if next == nil {
			if tx.lastWords {
				tx.lastWords = false
				q.t.closeWrite()
			}
			return true, nil
		}
		if moved > flushMost || next.op == opReadResponse && len(tx.writes) == 0 && tx.wanted > 0 {
			tx.yielded = true
			return false, nil
		}
		before := next.off
		if err := q.sendSegments(next); err != nil {
			return false, err
		}
		moved += next.off - before
		if next.off < next.size || !next.framed() {
			continue
		}
		if next.op == opReadResponse {
			tx.responses = tx.responses[1:]
			continue
		}
		tx.writes = tx.writes[1:]
		tx.out = append(tx.room(), next.behind...)
		if !next.quiet {
			q.complete(rdma.Completion{Op: rdma.OpWrite, ID: next.id})
		}
	}
}

// framed reports that the last segment has been framed; one of zero bytes needs
// a segment too, after which off is past size.
func (w *transfer) framed() bool { return w.off > w.size || w.size > 0 }

// recycle gives the memory of an empty out back.
func (tx *sender) recycle() {
	if tx.out == nil || tx.outHead < len(tx.out) {
		return
	}
	if cap(tx.out) <= outLen {
		outPool.Put(tx.outHome)
	}
	tx.out, tx.outHome, tx.outHead = nil, nil, 0
}

// next chooses between a Write and a Read Response, in turn.
func (tx *sender) next() *transfer {
	tx.respond = !tx.respond
	switch {
	case len(tx.responses) > 0 && (tx.respond || len(tx.writes) == 0):
		return tx.responses[0]
	case len(tx.writes) > 0:
		return tx.writes[0]
	}
	return nil
}

// sendSegments frames and writes one batch of a transfer.
func (q *QueuePair) sendSegments(w *transfer) error {
	tx := &q.tx
	mem := w.local
	if w.src != nil {
		w.src.mu.RLock()
		defer w.src.mu.RUnlock()
		if !w.src.live {
			err := violation(termRDMAPProtection, 0, "RFC 5040 §5.2", "Read of a region that has been invalidated")
			q.terminate(err, nil, 0, true)
			return err
		}
		mem = w.src.buf[w.srcOff : w.srcOff+uint64(w.size)]
	}
	b := newBatch(q.p.crc)
	defer b.free()
	step := q.p.maxULPDU - taggedLen
	for off := w.off; b.n < b.limit() && b.fits(0, step) && (off < w.size || off == 0); off += step {
		n := min(step, w.size-off)
		s := segment{tagged: true, op: w.op, last: off+n == w.size, stag: w.stag, to: w.to + uint64(off)}
		b.add(&s, nil, mem[off:off+n])
		if n == 0 {
			break
		}
	}
	written, err := q.t.write(b.close())
	if err != nil {
		return q.sendFailed(err)
	}
	n := b.n
	if written < b.total {
		n, tx.out = b.split(written, tx.room())
		if n == 0 {
			n, tx.out = 1, b.appendRange(tx.out, 0, b.ends[0])
		}
	}
	if w.size == 0 {
		w.off = 1
	} else {
		w.off = min(w.off+n*step, w.size)
	}
	return nil
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

// WaitRoom parks until the device is not Busy; see rdma.QueuePair.
func (q *QueuePair) WaitRoom() error {
	tx := &q.tx
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.wanted++
	defer func() {
		tx.wanted--
		tx.cond.Broadcast()
	}()
	for {
		switch {
		case tx.err != nil:
			return tx.err
		case tx.woken:
			tx.woken = false
			return nil
		case !tx.busy.Load():
			return nil
		case tx.pumping || tx.silent:
			tx.cond.Wait()
		default:
			tx.inRoom = true
			q.carry(func() bool { return !tx.busy.Load() })
			tx.inRoom = false
			if len(tx.responses) > 0 || tx.lastWords {
				q.startPump() // it returns before they are out
			}
		}
	}
}

// WakeRoom makes WaitRoom return; see rdma.QueuePair.
func (q *QueuePair) WakeRoom() {
	tx := &q.tx
	tx.mu.Lock()
	tx.woken = true
	if tx.inRoom {
		q.t.wakeWrite()
	}
	tx.cond.Broadcast()
	tx.mu.Unlock()
}

// carry is in the transport's waitWrite until enough has been written, it was
// woken, or the sending half has ended. Called with mu held and nobody pumping.
func (q *QueuePair) carry(enough func() bool) {
	tx := &q.tx
	tx.pumping = true
	tx.mu.Unlock()
	err := q.t.waitWrite(func() bool {
		tx.mu.Lock()
		defer tx.mu.Unlock()
		if tx.err != nil && !tx.lastWords {
			return true
		}
		done, err := q.flush()
		return done || err != nil || tx.yielded || enough()
	})
	tx.mu.Lock()
	tx.pumping = false
	if err != nil && err != errWoken {
		q.sendFailed(err)
	}
	tx.cond.Broadcast()
}

// Flush has the pump carry what is queued.
func (q *QueuePair) Flush() {
	q.tx.mu.Lock()
	q.startPump()
	q.tx.mu.Unlock()
}

// startPump starts the pump if something is queued and nobody carries it.
func (q *QueuePair) startPump() {
	tx := &q.tx
	if tx.pumping || tx.silent || !tx.pending() {
		return
	}
	tx.pumping = true // before the goroutine runs, so that there is one only
	tx.pump.Go(func() {
		tx.mu.Lock()
		defer tx.mu.Unlock()
		tx.pumping = false
		for tx.pending() {
			q.carry(func() bool { return false })
			for tx.wanted > 0 && !tx.busy.Load() && tx.err == nil {
				tx.cond.Wait() // it has room now, and is about to leave
			}
			if tx.pumping {
				return // WaitRoom carries meanwhile, and starts another pump
			}
		}
		tx.cond.Broadcast()
	})
}

// pending reports that something is queued that can still be sent.
func (tx *sender) pending() bool {
	return (tx.err == nil || tx.lastWords) && (len(tx.out) > 0 || len(tx.writes) > 0 || len(tx.responses) > 0)
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

// respond queues a Read Response and writes what the stream takes of it.
func (q *QueuePair) respond(w *transfer) error {
	tx := &q.tx
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.err != nil {
		return nil // the receiving half will find out for itself
	}
	if len(tx.responses) >= max(q.p.ird, 1) { // one may be the RTR, which counts nowhere
		return violation(termUntagged, 2, "RFC 5040 §5.2", "more than %d RDMA Reads outstanding", q.p.ird)
	}
	tx.responses = append(tx.responses, w)
	if !tx.pumping {
		q.flush()
		q.startPump()
	}
	return nil
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
