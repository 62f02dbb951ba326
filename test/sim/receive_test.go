package sim

import "github.com/gosdp/gosdp/wire"

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
	if n > 0 && m.MID != wire.MIDSrcAvail && e.snk.Bars(n) {
		e.w.failf("%s: %v with %d bytes behind a SrcAvail", e.name, m.MID, n)
	}
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
		if e.bk.Resizing() {
			e.w.failf("%s: a ChRcvBuf before the last was answered", e.name)
		}
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
