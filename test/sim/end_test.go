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
	open     bool
	gone     int // messages that the device has taken
	payload  int // messages stamped that have payload
	bytes    int // of the call's, in those that have gone
	offered  uint32
	withRide bool
}

// write is a call of Write.
type write struct {
	b       []byte
	done    int  // bytes that are through
	planned bool // by zcopy
	stop    bool // the call is to end
	fill    []byte
	into    wire.Advert // for fill
	flying  int         // RDMA Writes that have not completed
}

// read is a call of Read.
type read struct {
	b       []byte
	got     int // bytes fetched
	flying  int // RDMA Reads that have not completed
	stag    uint32
	offered bool
	waits   bool
	stop    bool
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

// collect takes in what has become of a Write's advertisements.
func (e *end) collect() {
	n := e.src.Moved()
	if n > 0 {
		if e.writing == nil {
			e.w.failf("%s: %d bytes were fetched of no Write", e.name, n)
		}
		e.writing.done += n
	}
	for stag, ok := e.src.Ended(); ok; stag, ok = e.src.Ended() {
		e.dev.invalidate(stag)
	}
}

// stepWrite has the Write do the next thing that it can do.
func (e *end) stepWrite() bool {
	c := e.writing
	if c == nil || e.batch.open {
		return false
	}
	e.collect()
	if _, _, ok := e.src.Due(); ok {
		return e.control() // nothing with payload overtakes it
	}
	if len(c.fill) > 0 {
		e.fill(c)
		return true
	}
	if !c.planned {
		if c.stop || c.done == len(c.b) {
			return e.endWrite(c)
		}
		return e.copy(c, len(c.b)-c.done)
	}
	p := e.src.Next(len(c.b)-c.done, c.stop)
	switch p.Step {
	case zcopy.Done:
		if c.flying == 0 {
			return e.endWrite(c)
		}
	case zcopy.Copy:
		return e.copy(c, p.N)
	case zcopy.Offer:
		return e.offer(c, p)
	case zcopy.Fill:
		e.w.tracef("%s: fills %d bytes of STag %#x", e.name, p.N, p.Advert.STag)
		e.src.Filling(p)
		c.fill, c.into = c.b[c.done:][:p.N], p.Advert
		e.fill(c)
		return true
	}
	return false
}

// copy sends some of the next n bytes as Data, the last of them in a SinkAvail if
// one is due.
func (e *end) copy(c *write, n int) bool {
	room := min(e.acct.Room(), 4)
	if room == 0 {
		return false
	}
	if e.w.resizes {
		e.bs.Wrote(n)
	}
	b := c.b[c.done:][:n]
	if advert, ok := e.snk.Carry(); ok && n <= e.bs.Size()-wire.MaxHeaderLen {
		m := wire.Message{Header: wire.Header{MID: wire.MIDSinkAvail}, Advert: advert, Payload: b}
		e.stamp(0, &m)
		e.src.Sending(1, n, false)
		gone := e.room(1)
		if gone == 1 {
			e.post(&m, 0)
			e.snk.Carried()
			e.checkAdverts()
		}
		e.batch = batch{open: true, gone: gone, payload: 1, bytes: gone * n}
		return e.sent()
	}
	var ms []wire.Message
	for bytes := 0; len(ms) < room && bytes < n; {
		k := min(e.bs.Payload(), n-bytes)
		ms = append(ms, wire.Message{Header: wire.Header{MID: wire.MIDData}, Payload: b[bytes:][:k]})
		e.stamp(len(ms)-1, &ms[len(ms)-1])
		bytes += k
	}
	e.src.Sending(len(ms), length(ms), false)
	gone := e.room(len(ms))
	for i := range ms[:gone] {
		e.post(&ms[i], 0)
	}
	e.begin(batch{gone: gone, payload: len(ms), bytes: length(ms[:gone])})
	return true
}

func length(ms []wire.Message) (n int) {
	for i := range ms {
		n += len(ms[i].Payload)
	}
	return n
}

// offer sends a SrcAvail.
func (e *end) offer(c *write, p zcopy.Plan) bool {
	p.Ride = min(p.Ride, e.bs.Size()-srcAvailLen)
	if p.Ride > 0 && e.acct.Room() == 0 || !e.acct.May(credits.Bare) {
		return false
	}
	b := c.b[c.done+p.Skip:][:p.N]
	stag, va := e.dev.register(b, true)
	m := wire.Message{Header: wire.Header{MID: wire.MIDSrcAvail}, Advert: wire.Advert{Len: uint32(p.N), STag: stag, VA: va}}
	n := batch{gone: 1, offered: stag}
	e.stamp(0, &m)
	if p.Ride > 0 {
		m.Payload = b[:p.Ride]
		n.payload, n.gone = 1, e.room(1)
		n.bytes = n.gone * p.Ride
		e.src.Sending(1, p.Ride, true)
	}
	e.src.Offered(p, stag)
	e.checkAdverts()
	if n.gone == 1 {
		e.post(&m, 0)
	}
	e.begin(n)
	return true
}

const srcAvailLen = wire.HeaderLen + 16

// fill posts an RDMA Write.
func (e *end) fill(c *write) {
	n := len(c.fill)
	if e.w.chance(3) {
		n = 1 + e.w.r.IntN(n)
	}
	e.dev.write(c.fill[:n], c.into.STag, c.into.VA)
	c.flying++
	c.done += n
	c.fill = c.fill[n:]
	c.into.VA += uint64(n)
	if len(c.fill) == 0 {
		e.src.Filled()
	}
}

// stepRead has the Read do the next thing that it can do.
func (e *end) stepRead() bool {
	c := e.reading
	switch {
	case c == nil || c.flying > 0 && e.bk.Bytes() > 0:
		return false
	case c.offered:
		return e.offered(c)
	case c.got == 0 && e.bk.Bytes() > 0:
		n := 0
		for n < len(c.b) && e.bk.Bytes() > 0 {
			n += e.copyIn(c.b[n:])
		}
		return e.endRead(c, n)
	}
	rest := len(c.b) - c.got
	if e.bk.Bytes() == 0 && e.snk.Holding() && rest > 0 && !c.stop {
		if !e.snk.Suits(rest) && c.got == 0 {
			_, _, before := e.snk.Due()
			e.snk.Decline()
			_, _, after := e.snk.Due()
			if after && !before {
				e.w.stats.declined++
			}
			e.wait(c)
			return after && !before
		}
		if n, stag, va, ok := e.snk.Fetch(min(rest, e.w.part)); ok {
			if seq, held := e.snk.Held(); held {
				e.w.failf("%s: RDMA Read behind SrcAvailCancel %d", e.name, seq)
			}
			if e.dev.read(c.b[c.got:][:n], stag, va) {
				e.w.stats.fetched++
				e.w.tracef("%s: fetches %d bytes of STag %#x", e.name, n, stag)
				c.got += n
				c.flying++
				return true
			}
			e.w.stats.unfetched++
			e.snk.Unfetch(n)
			return false
		}
	}
	switch {
	case c.flying > 0:
		return false
	case c.got > 0:
		return e.endRead(c, c.got)
	case c.stop, e.bk.Ended() && !e.snk.Holding():
		return e.endRead(c, 0)
	case !e.snk.Holding() && e.snk.MayOffer(len(c.b), e.bk.Size()):
		var va uint64
		c.stag, va = e.dev.register(c.b, false)
		c.offered = true
		e.snk.Offer(c.stag, va, len(c.b))
		e.wait(c)
		return true
	}
	e.wait(c)
	return false
}

// wait tells that the Read is about to wait.
func (e *end) wait(c *read) {
	if !c.waits {
		c.waits = true
		e.snk.Reading(len(c.b), e.bk.Size())
	}
}

// offered has a Read wait for its SinkAvail to end.
func (e *end) offered(c *read) bool {
	n, over := e.snk.Outcome()
	if !over {
		if c.stop {
			e.snk.Withdraw()
		}
		return false
	}
	e.dev.invalidate(c.stag)
	c.offered = false
	switch {
	case n > 0:
		e.w.stats.filled++
		return e.endRead(c, n)
	case e.bk.Bytes() > 0:
		e.w.stats.usedUp++
		return e.endRead(c, e.copyIn(c.b))
	}
	return true
}

// copyIn copies the payload of one message.
func (e *end) copyIn(b []byte) int {
	n := copy(b, e.bk.Head())
	if owner := e.bk.Consume(n); owner != nil {
		owner.Release()
	}
	return n
}

// poll takes one completion in.
func (e *end) poll() bool {
	if len(e.dev.cq) == 0 {
		return false
	}
	c := e.dev.cq[0]
	e.dev.cq = e.dev.cq[1:]
	switch c.kind {
	case itemWrite:
		e.writing.flying--
	case itemReadResponse:
		e.snk.Fetched(len(c.bytes))
		e.reading.flying--
	case itemSend:
		e.receive(c)
	}
	return true
}

// receive takes in a message.
func (e *end) receive(c completion) {
	var m wire.Message
	err := m.Parse(c.bytes)
	if err == nil {
		err = e.acct.Received(m.MSeq, m.MSeqAck, m.Bufs)
	}
	if err == nil {
		e.w.tracef("%s: gets %v %d", e.name, m.MID, m.MSeq)
		if e.posted--; e.posted < 0 {
			e.w.failf("%s: no private buffer for %v", e.name, m.MID)
		}
		e.bk.Used()
		e.src.Acked(m.MSeqAck)
		err = e.dispatch(&m, c.invalidated)
	}
	if err != nil {
		e.w.failf("%s: %v: %v", e.name, m.MID, err)
	}
	n := len(m.Payload)
	switch {
	case n == 0:
		e.Release()
	case e.readClosed:
		e.check(m.Payload)
		e.Release()
	default:
		e.bk.Add(m.Payload, e)
	}
	if m.MID != wire.MIDRdmaRdCompl && m.MID != wire.MIDRdmaWrCompl && c.invalidated != 0 {
		e.w.failf("%s: %v invalidates", e.name, m.MID)
	}
}

func (e *end) dispatch(m *wire.Message, invalidated uint32) error {
	n := len(m.Payload)
	switch m.MID {
	case wire.MIDData:
		if n > 0 {
			e.snk.Payload(n, true)
		}
	case wire.MIDSrcAvail:
		if err := e.snk.SrcAvail(m.Advert, n); err != nil {
			return err
		}
		if n > 0 {
			e.snk.Payload(n, false)
		}
	case wire.MIDSinkAvail:
		before := e.src.Outstanding()
		if err := e.src.SinkAvail(m.Advert, m.MSeqAck, e.bs.Size()); err != nil {
			return err
		}
		if before > 0 && e.src.Outstanding() == 0 {
			e.w.stats.crossed++
		}
		if n > 0 {
			e.snk.Payload(n, true)
		}
	case wire.MIDSrcAvailCancel:
		e.cancelled, e.cancelReads = m.MSeq, e.dev.readsPosted
		err := e.snk.SrcAvailCancel(m.MSeq)
		if seq, held := e.snk.Held(); held {
			e.w.stats.held++
			e.acct.Hold(seq)
		}
		return err
	case wire.MIDSendSm:
		return e.src.SendSm(m.MSeqAck)
	case wire.MIDRdmaRdCompl:
		return e.src.RdCompl(int(m.Size), invalidated, m.Flags&wire.FlagReqPipe != 0)
	case wire.MIDRdmaWrCompl:
		if m.Flags&wire.FlagReqPipe != 0 {
			e.src.Hint()
		}
		return e.snk.WrCompl(int(m.Size), invalidated)
	case wire.MIDSinkAvailCancel:
		e.src.SinkAvailCancel()
	case wire.MIDSinkCancelAck:
		return e.snk.CancelAck()
	case wire.MIDModeChange:
		if m.ModeOfSend {
			return e.src.ModeChange(m.Mode)
		}
		return e.snk.ModeChange(m.Mode)
	case wire.MIDChRcvBuf:
		if e.bs.Crossed(m.MSeqAck) {
			e.bk.Resize(m.Size)
			e.bk.Older(pick(e.w, 0, e.posted))
		}
	case wire.MIDChRcvBufAck:
		return e.bs.Acked(m.Size)
	case wire.MIDDisConn:
		e.bk.End()
		return e.snk.End()
	}
	return nil
}

// check compares bytes that have come with those that are next in the stream.
func (e *end) check(b []byte) {
	for i, got := range b {
		if want := content(e.peer.dir, e.came+i); got != want {
			e.w.failf("%s: byte %d is %#x, want %#x", e.name, e.came+i, got, want)
		}
	}
	e.came += len(b)
}

// content is the byte at a position of a stream.
func content(dir, position int) byte {
	return byte(uint32(2*position+dir) * 2654435761 >> 24)
}
