package iwarp

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gosdp/gosdp/internal/lockorder"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp/internal/nic"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
)

// The receiving path:
//
//  1. The transport reads into the free part of the current chunk.
//  2. parse takes FPDUs from it, one after the other: CRC, DDP, RDMAP.
//  3. A Send is lent to the caller where it lies. A Send of several segments is assembled in a
//     chunk of its own.
//  4. A Write or Read Response is placed: its bytes in the chunk are copied, and the rest is
//     read from the socket directly into the memory.
//  5. A Read Request becomes a transfer of the sender.

// directMin is how much of a tagged FPDU must be missing for it to be read directly into place.
// For less, another system call costs more than the copy.
const directMin = 8 << 10

// pollReads is how often one Poll reads at most: a peer could send without end what completes
// nothing here.
const pollReads = 64

// receiver is the receiving half of a queue pair. It belongs to the polling goroutine, which holds
// mu, except for the atomic fields.
type receiver struct {
	q          *QueuePair
	mu         lockorder.Mutex[lockorder.DeviceRead] // held by Poll and Wait until they return
	cur        *nic.Chunk                            // nil: none
	head, tail int                                   // of the bytes in cur that are not parsed yet
	big        bool                                  // the next chunk should be a big one
	small      int                                   // reads in a row that would have fitted a small chunk

	place   placement
	asm     *nic.Chunk // a Send of several segments, as far as it has arrived
	asmLen  int
	sendMSN uint32 // of the last Send, Read Request
	readMSN uint32
	heard   bool
	wrote   bool // an RDMA Write has placed bytes, and no message has followed it

	out  []rdma.Completion // where parse appends: the caller's wcs
	used int

	err     error // sticky, delivered after everything before it
	told    bool  // err was delivered: nothing comes after it
	buffers nic.Buffers
	waiting atomic.Bool // Wait is in the transport
}

// completions are those that the sending half produces.
type completions struct {
	mu      sync.Mutex
	done    []rdma.Completion
	err     error       // a violation that the sending half has found
	pending atomic.Bool // there is a completion or an error
}

// ProvideReceive sets the number and size of the receive buffers. They are promises: the memory is
// found when a message arrives.
func (q *QueuePair) ProvideReceive(count, size int) (old int) {
	q.rx.buffers.Provide(count, size)
	return 0
}

// Poll fills wcs with the completions that are there; see rdma.QueuePair.
func (q *QueuePair) Poll(wcs []rdma.Completion) (int, error) { return q.poll(wcs, false) }

// Wait is Poll that parks; see rdma.QueuePair.
func (q *QueuePair) Wait(wcs []rdma.Completion) (int, error) { return q.poll(wcs, true) }

func (q *QueuePair) poll(wcs []rdma.Completion, wait bool) (int, error) {
	rx := &q.rx
	rx.mu.Lock()
	defer rx.mu.Unlock()
	if rx.told {
		return 0, rx.err
	}
	rx.out, rx.used = wcs, 0
	defer func() { rx.out = nil }()
	woken := false
	for reads := 0; ; reads++ {
		if q.cq.pending.Load() {
			q.takeCompletions()
		}
		if rx.err == nil && rx.used < len(wcs) {
			if err := q.parse(); err != nil {
				q.fail(err)
			}
		}
		if rx.used > 0 {
			return rx.used, nil
		}
		if rx.err != nil {
			rx.told = true
			return 0, rx.err
		}
		if woken { // by Wake, if it was not for a completion
			return 0, nil
		}
		// poll sets waiting before it looks at cq for the last time; complete looks at waiting
		// after it has filled cq. So at least one of them sees what the other wrote.
		rx.waiting.Store(wait)
		n, err := 0, error(nil)
		if !q.cq.pending.Load() {
			n, err = q.t.read(rx, wait)
		}
		rx.waiting.Store(false)
		switch {
		case err == errWoken:
			if q.cq.pending.Load() {
				woken = true
				continue
			}
			return 0, nil
		case err != nil:
			q.fail(q.readFailed(err))
		case !wait && (n == 0 || reads > pollReads) && !q.cq.pending.Load():
			return 0, nil
		}
	}
}

// takeCompletions moves the completions of the sending half to the caller.
func (q *QueuePair) takeCompletions() {
	q.cq.mu.Lock()
	n := copy(q.rx.out[q.rx.used:], q.cq.done)
	q.rx.used += n
	q.cq.done = append(q.cq.done[:0], q.cq.done[n:]...)
	err := q.cq.err
	if len(q.cq.done) > 0 {
		err = nil // it comes after the completions
	}
	q.cq.pending.Store(len(q.cq.done) > 0)
	q.cq.mu.Unlock()
	if err != nil && q.rx.err == nil {
		q.fail(err)
	}
}

// readFailed returns what the end of the stream means at this point.
func (q *QueuePair) readFailed(err error) error {
	if err == io.EOF && (q.rx.tail > q.rx.head || q.rx.place.active || q.rx.asm != nil || q.rx.wrote) {
		return io.ErrUnexpectedEOF
	}
	if err == io.EOF && errors.Is(q.sendError(), syscall.ECONNRESET) {
		return os.NewSyscallError("read", syscall.ECONNRESET) // a kernel reports a reset once, and then an end
	}
	return err
}

// fail ends the receiving half, and the sending half too if the peer has violated a rule. It drops
// the current chunk.
func (q *QueuePair) fail(err error) {
	rx := &q.rx
	if q.closing.Load() { // what looks like a violation may have been caused by this end
		err = net.ErrClosed
	}
	if f, ok := err.(*fault); ok {
		q.tx.Lock()
		ulpdu, length := rx.offending()
		q.terminateLocked(f, ulpdu, length, !q.tx.Carrying)
		q.tx.Unlock()
		err = &f.ProtocolError
	}
	if !rx.heard { // a responder that still waits for the initiator's first FPDU
		q.tx.Lock()
		if q.tx.silent {
			q.sendFailedLocked(err)
		}
		q.tx.Unlock()
	}
	rx.err = err
	rx.place = placement{}
	for _, c := range []*nic.Chunk{rx.cur, rx.asm} {
		if c != nil {
			c.Drop()
		}
	}
	rx.cur, rx.asm, rx.head, rx.tail = nil, nil, 0, 0
}

// offending returns the ULPDU that is being parsed, as far as it has arrived or its headers are
// known, and its full length.
func (rx *receiver) offending() (ulpdu []byte, length int) {
	if p := &rx.place; p.active {
		return p.seg.appendTo(nil, p.size)[mpa.LengthLen:], taggedLen + p.size
	}
	if rx.tail-rx.head < mpa.LengthLen {
		return nil, 0
	}
	n := int(binary.BigEndian.Uint16(rx.cur.Bytes[rx.head:]))
	return rx.cur.Bytes[rx.head+mpa.LengthLen : min(rx.head+mpa.LengthLen+n, rx.tail)], n
}

// space returns where the next bytes go: first to the missing part of a segment that is being
// placed, then to the chunk.
func (rx *receiver) space() (first, second []byte) {
	if rx.place.active && rx.place.missing > 0 {
		first = rx.place.lock()
	}
	return first, rx.freeSpace()
}

// freeSpace returns the free part of a chunk that has room for the rest of the FPDU at head.
func (rx *receiver) freeSpace() []byte {
	if rx.cur != nil && rx.head == rx.tail && rx.cur.Sole() {
		rx.head, rx.tail = 0, 0
	}
	need := smallChunk / 8 // less is not worth a system call
	if have := rx.tail - rx.head; have >= mpa.LengthLen && !rx.place.active {
		need = mpa.FPDULen(int(binary.BigEndian.Uint16(rx.cur.Bytes[rx.head:]))) - have
	} else if have > 0 {
		need = taggedLen
	}
	if rx.cur != nil && len(rx.cur.Bytes)-rx.tail >= need {
		return rx.cur.Bytes[rx.tail:]
	}
	size := smallChunk
	if rx.big || rx.tail-rx.head+need > smallChunk {
		size = bigChunk
	}
	next := rx.newChunk(size)
	n := 0
	if rx.cur != nil {
		n = copy(next.Bytes, rx.cur.Bytes[rx.head:rx.tail])
		rx.cur.Drop()
	}
	rx.cur, rx.head, rx.tail = next, 0, n
	return next.Bytes[n:]
}

// got accounts for n bytes that were read into space.
func (rx *receiver) got(n int) {
	if rx.place.locked != nil {
		n -= rx.place.placed(n)
		rx.place.unlock()
	}
	rx.tail += n
	switch {
	case n == 0:
	case rx.tail == len(rx.cur.Bytes):
		rx.big, rx.small = true, 0
	case rx.big && n < smallChunk/2:
		if rx.small++; rx.small > 64 {
			rx.big, rx.small = false, 0
		}
	}
}

// parking drops the chunk before the connection parks. It keeps one that still has room and
// messages on loan; otherwise each message that arrives alone would hold a chunk of its own.
func (rx *receiver) parking() {
	if rx.cur != nil && rx.head == rx.tail &&
		(rx.cur.Sole() || len(rx.cur.Bytes)-rx.tail < smallChunk/8) {
		rx.cur.Drop()
		rx.cur, rx.head, rx.tail = nil, 0, 0
	}
}

// parse takes FPDUs from the chunk until no whole one is left or there is no room for completions.
func (q *QueuePair) parse() error {
	rx := &q.rx
	for rx.used < len(rx.out) {
		if rx.place.active {
			if done, err := q.continuePlacement(); !done || err != nil {
				return err
			}
			continue
		}
		have := rx.tail - rx.head
		if have < mpa.LengthLen {
			return nil
		}
		b := rx.cur.Bytes[rx.head:rx.tail]
		n := int(binary.BigEndian.Uint16(b))
		if n < taggedLen {
			return violation(termMPA, 3, "RFC 5044 §4.1", "FPDU of %d bytes is shorter than any header", n)
		}
		total := mpa.FPDULen(n)
		if have < total {
			if have < mpa.LengthLen+untaggedLen || total-have < directMin || b[mpa.LengthLen]&ddpTagged == 0 {
				return nil
			}
			if err := q.beginPlacement(b, n); err != nil {
				return err
			}
			continue
		}
		if q.p.CRC && !mpa.Intact(0, b[:total]) {
			return violation(termMPA, 2, "RFC 5044 §4.4", "CRC of an FPDU of %d bytes is wrong", n)
		}
		if err := q.segment(b[mpa.LengthLen : mpa.LengthLen+n]); err != nil {
			return err
		}
		rx.head += total
	}
	return nil
}

// segment handles one whole DDP segment.
func (q *QueuePair) segment(ulpdu []byte) error {
	if n := headerLen(ulpdu[0]); len(ulpdu) < n {
		return violation(termMPA, 3, "RFC 5041 §4", "segment of %d bytes is shorter than its header", len(ulpdu))
	}
	var s segment
	if err := s.parse(ulpdu); err != nil {
		return err
	}
	if !q.rx.heard {
		q.rx.heard = true
		q.unsilence()
	}
	payload := ulpdu[headerLen(ulpdu[0]):]
	switch {
	case s.tagged:
		return q.placeWhole(&s, payload)
	case s.op >= opSend && s.op <= opSendSolicitedInvalidate:
		return q.receiveSend(&s, payload)
	case s.op == opReadRequest:
		return q.receiveReadRequest(&s, payload)
	default:
		if s.qn != queueTerminate {
			return violation(termUntagged, 1, "RFC 5041 §5.1", "Terminate on queue %d", s.qn)
		}
		err := parseTerminate(payload)
		q.tx.Lock()
		q.sendFailedLocked(err)
		q.tx.Unlock()
		return err
	}
}

// receiveSend lends a message of one segment where it lies, and assembles one of several.
func (q *QueuePair) receiveSend(s *segment, payload []byte) error {
	rx := &q.rx
	if s.qn != queueSend {
		return violation(termUntagged, 1, "RFC 5041 §5.1", "Send on queue %d", s.qn)
	}
	if want := rx.sendMSN + 1; s.msn != want {
		return violation(termUntagged, 3, "RFC 5041 §5.2", "Send number %d, expected %d", s.msn, want)
	}
	if int(s.mo) != rx.asmLen || s.mo > 1<<30 {
		return violation(termUntagged, 4, "RFC 5041 §5.2", "segment at offset %d, expected %d", s.mo, rx.asmLen)
	}
	n := rx.asmLen + len(payload)
	if size := rx.buffers.Size(); n > size {
		return violation(termUntagged, 5, "RFC 5041 §7.1", "message of %d bytes or more for a buffer of %d", n, size)
	}
	if rx.asm == nil && !rx.buffers.Take() {
		return violation(termUntagged, 2, "RFC 5041 §7.1", "message %d has no buffer posted for it", s.msn)
	}
	c := rx.completion()
	switch {
	case rx.asm == nil && s.last:
		c.Buffer = rx.lend(rx.cur, payload)
	default:
		if rx.asm == nil {
			rx.asm = rx.newChunk(n)
		}
		if n > len(rx.asm.Bytes) {
			bigger := rx.newChunk(2 * n)
			copy(bigger.Bytes, rx.asm.Bytes[:rx.asmLen])
			rx.asm.Drop()
			rx.asm = bigger
		}
		rx.asmLen += copy(rx.asm.Bytes[rx.asmLen:], payload)
		if !s.last {
			return nil
		}
		c.Buffer = rx.lend(rx.asm, rx.asm.Bytes[:rx.asmLen])
		rx.asm.Drop()
		rx.asm, rx.asmLen = nil, 0
	}
	c.Op = rdma.OpReceive
	if s.op == opSendInvalidate || s.op == opSendSolicitedInvalidate {
		if !q.regions.Remove(rdma.STag(s.stag)) {
			c.Buffer.Release()
			return violation(termRDMAPOperation, 9, "RFC 5040 §5.3", "STag %#x to invalidate is not registered here", s.stag)
		}
		c.Invalidated = rdma.STag(s.stag)
	}
	rx.sendMSN++
	rx.used++
	rx.wrote = false
	return nil
}

// completion returns the next completion to fill; used counts it.
func (rx *receiver) completion() *rdma.Completion {
	c := &rx.out[rx.used]
	*c = rdma.Completion{}
	return c
}

// receiveReadRequest checks an RDMA Read of the peer and queues the response.
func (q *QueuePair) receiveReadRequest(s *segment, payload []byte) error {
	rx := &q.rx
	switch {
	case s.qn != queueRead:
		return violation(termUntagged, 1, "RFC 5041 §5.1", "Read Request on queue %d", s.qn)
	case s.msn != rx.readMSN+1:
		return violation(termUntagged, 3, "RFC 5041 §5.2", "Read Request number %d, expected %d", s.msn, rx.readMSN+1)
	case s.mo != 0 || !s.last:
		return violation(termUntagged, 4, "RFC 5040 §4.4", "Read Request in several segments")
	case len(payload) != readRequestLen:
		return violation(termUntagged, 5, "RFC 5040 §4.4", "Read Request of %d bytes", len(payload))
	}
	rx.readMSN++
	var req readRequest
	req.parse(payload)
	w := &transfer{op: opReadResponse, stag: req.sinkSTag, to: req.sinkTO, size: int(req.size)}
	if req.size > 0 { // a Read of zero bytes names no region (RFC 5040 §5.2)
		r, err := q.findRegion(req.srcSTag, req.srcTO, int(req.size), rdma.RemoteRead, termRDMAPProtection)
		if err != nil {
			return err
		}
		if req.sinkTO+uint64(req.size) < req.sinkTO {
			return violation(termRDMAPProtection, 4, "RFC 5040 §5.2", "sink offset %#x + %d wraps around", req.sinkTO, req.size)
		}
		w.src, w.srcOff = r, req.srcTO
	}
	return q.respond(w)
}
