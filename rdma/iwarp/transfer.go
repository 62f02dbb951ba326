package iwarp

import "github.com/gosdp/gosdp/rdma"

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
	for moved, answered := 0, false; ; {
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
		// Who waits for room comes after one batch of a Response, and that after one
		// message: neither starves the other.
		if moved > flushMost || answered && next.op == opReadResponse && len(tx.writes) == 0 && tx.wanted > 0 {
			tx.yielded = true
			return false, nil
		}
		answered = answered || next.op == opReadResponse
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
