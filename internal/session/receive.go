package session

import (
	"errors"
	"fmt"

	"github.com/gosdp/gosdp/bcopy"
	"github.com/gosdp/gosdp/wire"
)

// Event is what a message that came means to the driver.
type Event struct {
	MID     wire.MID
	Valid   bool   // the message was counted; otherwise none of the rest is set
	Payload int    // bytes
	Kept    bool   // the payload is in the Sink, which has the buffer until it is read
	Resize  uint32 // not 0: the peer asks for private buffers of so many bytes; call Sink.Resize
}

// Receive takes in a message. owner gets the message's buffer back when its payload has been
// read, if the Event says that it was kept; otherwise the driver posts the buffer again, and
// tells the Account. drop: the program does not read any more.
//
// An error is a violation of the protocol by the peer, and names the section of the draft
// that it breaks. invalidated is the region that came invalidated with it, or 0.
func (s *Session) Receive(b []byte, owner bcopy.Owner, invalidated uint32, drop bool) (e Event, err error) {
	var m wire.Message
	if s.grows {
		err = m.ParseGrown(b)
	} else {
		err = m.Parse(b)
	}
	if err == nil {
		err = s.Account.Received(m.MSeq, m.MSeqAck, m.Bufs)
	}
	if err == nil && invalidated != 0 && m.MID != wire.MIDRdmaRdCompl && m.MID != wire.MIDRdmaWrCompl {
		err = fmt.Errorf("sdp: §9.2: %v invalidates STag %#x, which was not advertised", m.MID, invalidated)
	}
	if err != nil {
		return e, err
	}
	e.Valid, e.MID, e.Payload = true, m.MID, len(m.Payload)
	s.Sink.Used()
	s.ZSource.Acked(m.MSeqAck)
	if e.Resize, err = s.dispatch(&m, invalidated); err != nil || e.Payload == 0 {
		return e, err
	}
	s.ZSink.Payload(e.Payload, m.MID != wire.MIDSrcAvail)
	if !drop {
		s.Sink.Add(m.Payload, owner)
		e.Kept = true
	}
	return e, nil
}

// dispatch carries out what the message says, but for its payload.
func (s *Session) dispatch(m *wire.Message, invalidated uint32) (resize uint32, err error) {
	n := len(m.Payload)
	switch {
	case n > 0 && s.Sink.Ended():
		return 0, fmt.Errorf("sdp: §8.2.1: %v with payload after DisConn", m.MID)
	case n > 0 && m.MID != wire.MIDSrcAvail && s.ZSink.Bars(n):
		return 0, fmt.Errorf("sdp: §11.2: %v with payload after a SrcAvail", m.MID)
	}
	switch m.MID {
	case wire.MIDData:
		return 0, nil
	case wire.MIDDisConn:
		if s.Sink.Ended() {
			return 0, errors.New("sdp: §8.2.1: a second DisConn")
		}
		err = s.ZSink.End()
		s.Sink.End()
		return 0, err
	case wire.MIDAbortConn:
		if !s.Sink.Ended() {
			return 0, errors.New("sdp: §8.2.2: AbortConn without DisConn")
		}
		return 0, nil
	case wire.MIDChRcvBuf:
		if s.Sink.Resizing() {
			return 0, errors.New("sdp: §10.6: a ChRcvBuf before the one that is not acknowledged")
		}
		if s.Source.Crossed(m.MSeqAck) {
			resize = m.Size
		}
		return resize, nil
	case wire.MIDChRcvBufAck:
		return 0, s.Source.Acked(m.Size)
	}
	return 0, s.advertised(m, invalidated)
}

// advertised takes in a message about advertisements.
func (s *Session) advertised(m *wire.Message, invalidated uint32) error {
	if s.ZSink == nil {
		s.refuseDirect()
	}
	switch m.MID {
	case wire.MIDSrcAvail:
		return s.ZSink.SrcAvail(m.Advert, len(m.Payload))
	case wire.MIDSrcAvailCancel:
		err := s.ZSink.SrcAvailCancel(m.MSeq)
		if seq, held := s.ZSink.Held(); held {
			s.Account.Hold(seq)
		}
		return err
	case wire.MIDRdmaRdCompl:
		return s.ZSource.RdCompl(int(m.Size), invalidated, m.Flags&wire.FlagReqPipe != 0)
	case wire.MIDSendSm:
		return s.ZSource.SendSm(m.MSeqAck)
	case wire.MIDSinkAvail:
		return s.ZSource.SinkAvail(m.Advert, m.MSeqAck, s.Source.Size())
	case wire.MIDSinkAvailCancel:
		s.ZSource.SinkAvailCancel()
		return nil
	case wire.MIDSinkCancelAck:
		return s.ZSink.CancelAck()
	case wire.MIDRdmaWrCompl:
		if m.Flags&wire.FlagReqPipe != 0 {
			s.ZSource.Hint()
		}
		return s.ZSink.WrCompl(int(m.Size), invalidated)
	case wire.MIDModeChange:
		if m.ModeOfSend {
			return s.ZSource.ModeChange(m.Mode)
		}
		return s.ZSink.ModeChange(m.Mode)
	}
	return fmt.Errorf("sdp: §9: %v has no place here", m.MID)
}
