package sim

import (
	"github.com/gosdp/gosdp/bcopy"
	"github.com/gosdp/gosdp/internal/session"
	"github.com/gosdp/gosdp/wire"
	"github.com/gosdp/gosdp/zcopy"
)

// end is one end of the connection: a Session, and what engine.Conn is to it.
type end struct {
	w    *world
	name string
	dir  int // of what it sends
	dev  *device
	peer *end

	s   session.Session
	bs  *bcopy.Source // these four are parts of it, to check and to provoke
	bk  *bcopy.Sink
	src *zcopy.Source
	snk *zcopy.Sink

	posted     int // private buffers
	adverts    int // the peer's MaxAdverts
	messages   session.Batch
	batch      batch
	writing    *write
	reading    *read
	readClosed bool // what comes is thrown away

	cancelled   uint32 // the last SrcAvailCancel that was received
	cancelReads int    // RDMA Reads that had been posted then

	wrote int // bytes that Writes have said are through
	came  int // bytes that Reads have returned, or that were thrown away
}

// batch is a Batch from its stamping to the end of PostSend. No other message is sent
// meanwhile, but messages of the peer are received.
type batch struct {
	open    bool
	gone    int // messages that the device has taken
	offered uint32
}

// Release posts a private buffer again.
func (e *end) Release() {
	e.posted++
	e.s.Post(1)
}

// post hands the first messages of the batch to the device.
func (e *end) post(gone int) {
	for i := range e.messages.WRs {
		wr := &e.messages.WRs[i]
		b := append(append([]byte(nil), wr.Header...), wr.Payload...)
		var m wire.Message
		if err := m.Parse(b); err != nil {
			e.w.failf("%s: %v", e.name, err)
		}
		if e.dev.readsDone < e.cancelReads && m.MSeqAck >= e.cancelled {
			e.w.failf("%s: acknowledges SrcAvailCancel %d while RDMA Reads are under way", e.name, e.cancelled)
		}
		if m.MID == wire.MIDChRcvBuf {
			if seq, held := e.snk.Held(); held {
				e.w.failf("%s: ChRcvBuf while the acknowledgement of %d is held back", e.name, seq)
			}
		}
		if len(b) > e.bs.Size() {
			e.w.failf("%s: %v of %d bytes, the peer's buffers have %d", e.name, m.MID, len(b), e.bs.Size())
		}
		if i >= gone {
			continue
		}
		e.w.tracef("%s: sends %v %d ack %d bufs %d%s", e.name, m.MID, m.MSeq, m.MSeqAck, m.Bufs, describe(&m, uint32(wr.Invalidate)))
		e.w.stats.sent(&m)
		e.dev.send(b, uint32(wr.Invalidate))
	}
}

// checkAdverts: both kinds together are no more than the peer takes (§11.3).
func (e *end) checkAdverts() {
	n := e.src.Outstanding()
	if e.snk.Advertised() != 0 {
		n++
	}
	if n > e.adverts {
		e.w.failf("%s: %d advertisements, the peer takes %d", e.name, n, e.adverts)
	}
}

// control sends one message of the protocol's own.
func (e *end) control() bool {
	if e.batch.open || !e.s.Control(&e.messages, false) {
		return false
	}
	e.post(1)
	e.checkAdverts()
	e.begin(batch{gone: 1})
	return true
}

// begin opens a batch, and may close it at once.
func (e *end) begin(b batch) {
	e.batch = b
	e.batch.open = true
	if e.w.chance(2) {
		e.sent()
	}
}

// sent is the end of PostSend.
func (e *end) sent() bool {
	b := e.batch
	if !b.open {
		return false
	}
	e.batch = batch{}
	if n, _ := e.s.Sent(&e.messages, b.gone); n > 0 {
		e.writing.done += n
	}
	if b.offered != 0 && b.gone == 0 {
		e.w.stats.unoffered++
		e.dev.invalidate(b.offered)
	}
	return true
}

// room has the device take fewer payload messages than there are, now and then.
func (e *end) room(messages int) int {
	if e.w.chance(e.w.refusal) {
		return e.w.r.IntN(messages + 1)
	}
	return messages
}
