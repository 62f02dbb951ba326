package iwarp

import (
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp/internal/nic"
)

// transfer is an RDMA Write of this end, or a response to a Read of the peer, of which off bytes
// have been framed.
type transfer struct {
	op   opcode
	stag uint32 // the peer's buffer
	to   uint64
	size int
	off  int

	local  []byte      // Write: the caller's memory
	id     uint64      // Write: of the work request
	quiet  bool        // Write: it has no completion, because it is the connection's RTR
	next   []byte      // Write: FPDUs posted after it
	src    *nic.Region // Read Response: this end's registered memory
	srcOff uint64
}

// PostRead posts an RDMA Read; see rdma.QueuePair.
func (q *QueuePair) PostRead(wr rdma.ReadWR) error {
	return q.postRead(wr, q.p.ORD, false)
}

func (q *QueuePair) postRead(wr rdma.ReadWR, limit int, quiet bool) error {
	tx := &q.tx
	tx.Lock()
	defer tx.Unlock()
	if tx.Err != nil {
		return tx.Err
	}
	if tx.queuedLocked() > maxQueued {
		return rdma.ErrNoRoom
	}
	read := &reading{id: wr.ID, local: wr.Local, stag: tx.sinkSTag + 1, quiet: quiet}
	if !q.reads.Add(read, limit) {
		return rdma.ErrNoRoom
	}
	tx.sinkSTag++
	tx.readMSN++
	req := readRequest{sinkSTag: read.stag, size: uint32(len(wr.Local)), srcSTag: uint32(wr.STag), srcTO: wr.VA}
	var raw [readRequestLen]byte
	s := segment{op: opReadRequest, last: true, qn: queueRead, msn: tx.readMSN}
	q.queueLocked(&s, req.appendTo(raw[:0]), nil)
	// If this fails, the Read is outstanding nevertheless: its Response may have arrived already, and
	// the caller must not have its memory back before Poll has found the end.
	if err := q.startLocked(); quiet {
		return err
	}
	return nil
}

// PostWrite posts an RDMA Write; see rdma.QueuePair.
func (q *QueuePair) PostWrite(wr rdma.WriteWR) error {
	return q.postWrite(wr, false)
}

func (q *QueuePair) postWrite(wr rdma.WriteWR, quiet bool) error {
	tx := &q.tx
	tx.Lock()
	defer tx.Unlock()
	if tx.Err != nil {
		return tx.Err
	}
	if len(tx.writes) >= maxWrites {
		return rdma.ErrNoRoom
	}
	tx.writes = append(tx.writes, &transfer{
		op: opWrite, stag: uint32(wr.STag), to: wr.VA, size: len(wr.Local),
		local: wr.Local, id: wr.ID, quiet: quiet,
	})
	return q.startLocked()
}

// maxWrites is how many RDMA Writes may wait for the stream.
const maxWrites = 1024

// startLocked writes what was just queued, as far as the stream accepts it.
func (q *QueuePair) startLocked() error {
	q.tx.updateLocked()
	if q.tx.Carrying {
		return nil
	}
	_, err := q.flushLocked()
	return err
}

// flushMost is how many bytes flushLocked writes before it lets other goroutines have the mutex.
const flushMost = 1 << 20

// flushLocked writes what is queued until nothing is left, which it reports, or the stream is
// full, or it has yielded. No other goroutine may be carrying.
func (q *QueuePair) flushLocked() (done bool, err error) {
	tx := &q.tx
	defer tx.updateLocked()
	tx.yielded = false
	if tx.silent {
		return false, nil
	}
	for moved, answered := 0, false; ; {
		for len(tx.out) > tx.outHead {
			tx.one[0] = tx.out[tx.outHead:]
			n, err := q.t.write(tx.one[:])
			tx.one[0] = nil
			if err != nil {
				return false, q.sendFailedLocked(err)
			}
			if tx.outHead += n; tx.outHead < len(tx.out) {
				return false, nil
			}
		}
		tx.recycleLocked()
		next := tx.nextLocked()
		if next == nil {
			if tx.terminating {
				tx.terminating = false
				q.t.closeWrite()
			}
			return true, nil
		}
		// WaitRoom's caller sends one message after each batch of a Response, so neither
		// starves the other.
		if moved > flushMost || answered && next.op == opReadResponse && len(tx.writes) == 0 && tx.Waiting > 0 {
			tx.yielded = true
			return false, nil
		}
		answered = answered || next.op == opReadResponse
		before := next.off
		if err := q.sendSegmentsLocked(next); err != nil {
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
		tx.out = append(tx.spareLocked(), next.next...)
		if !next.quiet {
			q.complete(rdma.Completion{Op: rdma.OpWrite, ID: next.id})
		}
	}
}

// framed reports whether the last segment has been framed. A transfer of zero bytes needs a segment
// too; after that, off exceeds size.
func (w *transfer) framed() bool { return w.off > w.size || w.size > 0 }

// recycleLocked returns the memory of out to its pool if out is empty.
func (tx *sender) recycleLocked() {
	if tx.out == nil || tx.outHead < len(tx.out) {
		return
	}
	if cap(tx.out) <= outLen {
		outPool.Put(tx.outHome)
	}
	tx.out, tx.outHome, tx.outHead = nil, nil, 0
}

// nextLocked chooses between a Write and a Read Response, in turn.
func (tx *sender) nextLocked() *transfer {
	tx.respond = !tx.respond
	switch {
	case len(tx.responses) > 0 && (tx.respond || len(tx.writes) == 0):
		return tx.responses[0]
	case len(tx.writes) > 0:
		return tx.writes[0]
	}
	return nil
}

// sendSegmentsLocked frames and writes one batch of a transfer.
func (q *QueuePair) sendSegmentsLocked(w *transfer) error {
	tx := &q.tx
	mem := w.local
	if w.src != nil {
		if mem = w.src.Hold(w.srcOff, w.size); mem == nil {
			err := violation(termRDMAPProtection, 0, "RFC 5040 §5.2", "Read of a region that has been invalidated")
			q.terminateLocked(err, nil, 0, true)
			return err
		}
		defer w.src.Release()
	}
	b := newBatch(q.p.CRC)
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
		return q.sendFailedLocked(err)
	}
	n := b.n
	if written < b.total {
		n, tx.out = b.split(written, tx.spareLocked())
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

// respond queues a Read Response and writes as much of it as the stream accepts.
func (q *QueuePair) respond(w *transfer) error {
	tx := &q.tx
	tx.Lock()
	defer tx.Unlock()
	if tx.Err != nil {
		return nil // the receiving half will find out for itself
	}
	if len(tx.responses) >= max(q.p.IRD, 1) { // the RTR may be one, and it does not count against IRD
		return violation(termUntagged, 2, "RFC 5040 §5.2", "more than %d RDMA Reads outstanding", q.p.IRD)
	}
	tx.responses = append(tx.responses, w)
	if !tx.Carrying {
		q.flushLocked()
		tx.StartPumpLocked((*carrier)(q))
	}
	return nil
}
