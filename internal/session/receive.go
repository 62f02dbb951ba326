package session

import (
	"errors"
	"fmt"

	"github.com/gosdp/gosdp/bcopy"
	"github.com/gosdp/gosdp/wire"
)

// Event says what a received message means to the driver.
type Event struct {
	MID     wire.MID
	Valid   bool   // the message was counted; otherwise no other field is set
	Payload int    // bytes
	Kept    bool   // the payload is unread; Consume returns the owner of its buffer
	Reset   bool   // the peer has aborted the connection
	Resize  uint32 // not 0: the size of private buffers that the peer asks for; call Resize
}

// Receive handles a received message b in a private buffer of owner. If the Event does not
// say Kept, the driver must post the buffer again, which Receive has counted. invalidated is
// the region that the message has invalidated, or 0. drop says that the program has closed the
// connection.
//
// An error is a violation of the protocol by the peer, and names the section of the draft.
func (s *Session) Receive(b []byte, owner bcopy.Owner, invalidated uint32, drop bool) (e Event, err error) {
	var m wire.Message
	if err = m.Parse(b); err == nil {
		err = s.account.Received(m.MSeq, m.MSeqAck, m.Bufs)
	}
	if err == nil && invalidated != 0 && m.MID != wire.MIDRdmaRdCompl && m.MID != wire.MIDRdmaWrCompl {
		err = fmt.Errorf("sdp: §9.2: %v invalidates STag %#x, which was not advertised", m.MID, invalidated)
	}
	if err != nil {
		return e, err
	}
	e.Valid, e.MID, e.Payload = true, m.MID, len(m.Payload)
	s.sink.Used()
	s.zsource.Acked(m.MSeqAck)
	if e.Resize, err = s.dispatch(&m, invalidated); err != nil {
		return e, err
	}
	e.Reset = m.MID == wire.MIDAbortConn
	if e.Payload > 0 {
		s.zsink.Payload(e.Payload, m.MID != wire.MIDSrcAvail)
		e.Kept = !drop
	}
	if e.Kept {
		s.sink.Add(m.Payload, owner)
	} else {
		s.account.Post(1)
	}
	return e, nil
}

// dispatch handles the message except for its payload.
func (s *Session) dispatch(m *wire.Message, invalidated uint32) (resize uint32, err error) {
	n := len(m.Payload)
	switch {
	case n > 0 && s.sink.Ended():
		return 0, fmt.Errorf("sdp: §8.2.1: %v with payload after DisConn", m.MID)
	case n > 0 && m.MID != wire.MIDSrcAvail && s.zsink.Bars(n):
		return 0, fmt.Errorf("sdp: §11.2: %v with payload after SrcAvail", m.MID)
	}
	switch m.MID {
	case wire.MIDData:
		return 0, nil
	case wire.MIDDisConn:
		if s.sink.Ended() {
			return 0, errors.New("sdp: §8.2.1: second DisConn")
		}
		err = s.zsink.End()
		s.sink.End()
		return 0, err
	case wire.MIDAbortConn:
		if !s.sink.Ended() {
			return 0, errors.New("sdp: §8.2.2: AbortConn without DisConn")
		}
		return 0, nil
	case wire.MIDChRcvBuf:
		if s.sink.Resizing() {
			return 0, errors.New("sdp: §10.6: ChRcvBuf before the previous one was acknowledged")
		}
		if s.source.Crossed(m.MSeqAck) {
			resize = m.Size
		}
		return resize, nil
	case wire.MIDChRcvBufAck:
		return 0, s.source.Acked(m.Size)
	}
	return 0, s.advertised(m, invalidated)
}

// advertised handles a message about advertisements.
func (s *Session) advertised(m *wire.Message, invalidated uint32) error {
	if s.zsink == nil {
		s.peerStarts()
	}
	switch m.MID {
	case wire.MIDSrcAvail:
		return s.zsink.SrcAvail(m.Advert, len(m.Payload))
	case wire.MIDSrcAvailCancel:
		err := s.zsink.SrcAvailCancel(m.MSeq)
		if seq, held := s.zsink.Held(); held {
			s.account.Hold(seq)
		}
		return err
	case wire.MIDRdmaRdCompl:
		return s.zsource.RdCompl(int(m.Size), invalidated, m.Flags&wire.FlagReqPipe != 0)
	case wire.MIDSendSm:
		return s.zsource.SendSm(m.MSeqAck)
	case wire.MIDSinkAvail:
		return s.zsource.SinkAvail(m.Advert, m.MSeqAck, s.source.Size())
	case wire.MIDSinkAvailCancel:
		s.zsource.SinkAvailCancel()
		return nil
	case wire.MIDSinkCancelAck:
		return s.zsink.CancelAck()
	case wire.MIDRdmaWrCompl:
		if m.Flags&wire.FlagReqPipe != 0 {
			s.zsource.Hint()
		}
		return s.zsink.WrCompl(int(m.Size), invalidated)
	case wire.MIDModeChange:
		if m.ModeOfSend {
			return s.zsource.ModeChange(m.Mode)
		}
		return s.zsink.ModeChange(m.Mode)
	}
	return fmt.Errorf("sdp: %v after set-up", m.MID)
}
