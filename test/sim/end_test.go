package sim

import (
	"github.com/gosdp/gosdp/bcopy"
	"github.com/gosdp/gosdp/credits"
	"github.com/gosdp/gosdp/wire"
	"github.com/gosdp/gosdp/zcopy"
)

// end is one end of the connection: what sdp.Conn is, without its locks.
type end struct {
	w    *world
	name string
	dir  int // of what it sends
	dev  *device
	peer *end

	acct credits.Account
	bs   bcopy.Source
	bk   bcopy.Sink
	src  zcopy.Source
	snk  zcopy.Sink

	posted     int // private buffers
	adverts    int // the peer's MaxAdverts
	batch      batch
	writing    *write
	reading    *read
	fin        fin
	readClosed bool // what comes is thrown away

	cancelled   uint32 // the SrcAvailCancel that has come last
	cancelReads int    // RDMA Reads that had been posted then

	wrote int // bytes that Writes have said are through
	came  int // bytes that Reads have returned, or that were thrown away
}

type fin uint8

const (
	finNone fin = iota
	finDue
	finSent
)

// batch is what is between being stamped and the end of PostSend: no other
// message goes meanwhile, but what the peer sends is taken in.
type batch struct {
	open    bool
	gone    int // messages that the device has taken
	payload int // messages stamped that have payload
	bytes   int // of the call's, in those that have gone
	offered uint32
}

// Release posts a private buffer again.
func (e *end) Release() {
	e.posted++
	e.acct.Post(1)
}

// stamp gives a message its place.
func (e *end) stamp(i int, m *wire.Message) {
	if i == 0 {
		if _, held := e.snk.Held(); !held {
			e.acct.Release()
		}
	}
	m.MSeq, m.MSeqAck, m.Bufs = e.acct.Next(uint32(i))
	if e.dev.readsDone < e.cancelReads && m.MSeqAck >= e.cancelled {
		e.w.failf("%s: acknowledges SrcAvailCancel %d while RDMA Reads are under way", e.name, e.cancelled)
	}
}

// post hands a stamped message to the device.
func (e *end) post(m *wire.Message, invalidate uint32) {
	b := append(m.AppendHeader(nil), m.Payload...)
	if len(b) > e.bs.Size() {
		e.w.failf("%s: %v of %d bytes, the peer's buffers have %d", e.name, m.MID, len(b), e.bs.Size())
	}
	e.w.tracef("%s: sends %v %d ack %d bufs %d%s", e.name, m.MID, m.MSeq, m.MSeqAck, m.Bufs, describe(m, invalidate))
	e.w.stats.sent(m)
	e.dev.send(b, invalidate)
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

// due returns the message of the protocol's own that is to go next, and what to
// tell when it has its MSeq.
func (e *end) due() (m wire.Message, invalidate uint32, took func(*wire.Message), ok bool) {
	if e.acct.May(credits.Bare) {
		sm, si, sok := e.src.Due()
		km, ki, kok := e.snk.Due()
		switch {
		case sok && (!kok || e.w.chance(2)):
			return sm, si, e.src.Took, true
		case kok && km.MID == wire.MIDSinkAvail && e.brief():
			// a Write is about to carry it
		case kok:
			return km, ki, e.snk.Took, true
		}
		size, ack := e.bk.Ack()
		want, request := e.bs.Request()
		switch {
		case ack:
			m.MID, m.Size = wire.MIDChRcvBufAck, uint32(size)
			return m, 0, func(*wire.Message) { e.bk.Acked(); e.snk.Resized(e.bk.Size()) }, true
		case request:
			m.MID, m.Size = wire.MIDChRcvBuf, uint32(want)
			return m, 0, func(m *wire.Message) { e.bs.Requested(m.MSeq) }, true
		case e.fin == finDue && !kok:
			m.MID = wire.MIDDisConn
			return m, 0, func(*wire.Message) { e.fin = finSent }, true
		}
	}
	if e.acct.MustUpdate() && e.acct.May(credits.Update) {
		m.MID = wire.MIDData
		return m, 0, func(*wire.Message) {}, true
	}
	return m, 0, nil, false
}

// brief reports that a Write can go that is no longer than one message.
func (e *end) brief() bool {
	c := e.writing
	return c != nil && !c.planned && !c.stop && e.acct.Room() > 0 && len(c.b)-c.done <= e.bs.Size()-wire.MaxHeaderLen
}

// control sends one message of the protocol's own.
func (e *end) control() bool {
	if e.batch.open {
		return false
	}
	m, invalidate, took, ok := e.due()
	if !ok {
		return false
	}
	if m.MID == wire.MIDRdmaWrCompl && e.snk.WantsPipelined() {
		m.Flags = wire.FlagReqPipe
	}
	e.stamp(0, &m)
	took(&m)
	e.post(&m, invalidate)
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
	e.acct.Sent(b.gone)
	if b.payload > 0 {
		e.src.Sent(min(b.gone, b.payload), b.bytes)
		e.writing.done += b.bytes
	}
	if b.offered != 0 && b.gone == 0 {
		e.w.stats.unoffered++
		e.src.Unoffer(b.offered)
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
