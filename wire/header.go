// Package wire encodes and parses the messages of the Sockets Direct Protocol, and the offers
// and the choice by which two ends agree on a device. It checks each message by itself. Its
// callers check sequence numbers, credit, and whether a message is allowed in the state of the
// connection.
//
// Sections (§) are those of draft-pinkerton-iwarp-sdp-01. "Ours" marks rules that the draft does
// not have, or from which this library differs on purpose; docs/protocol.md specifies them. All
// integers on the wire are big-endian.
//
// Programs use package sdp. This package can be imported only because of the layout of the module, and promises
// no compatibility.
package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// MID is the message identifier, which says what kind of message it is (§6.1.1).
type MID uint8

const (
	MIDHello           MID = 0x00 // the client's half of the connection set-up
	MIDHelloAck        MID = 0x01 // the server's half
	MIDDisConn         MID = 0x02 // no more data follows: a FIN
	MIDAbortConn       MID = 0x03 // after a DisConn: a reset
	MIDSendSm          MID = 0x04 // asks for the oldest SrcAvail's bytes as Data
	MIDRdmaWrCompl     MID = 0x05 // Size bytes were written into the oldest SinkAvail
	MIDRdmaRdCompl     MID = 0x06 // Size bytes were read from the oldest SrcAvail
	MIDModeChange      MID = 0x07 // a direction changes its flow control mode
	MIDSrcAvailCancel  MID = 0x08 // withdraws the SrcAvails that were not processed
	MIDSinkAvailCancel MID = 0x09 // withdraws the SinkAvails that were not processed
	MIDSinkCancelAck   MID = 0x0A // the SinkAvails are withdrawn
	MIDChRcvBuf        MID = 0x0B // asks for private buffers of Size bytes
	MIDChRcvBufAck     MID = 0x0C // the private buffers have Size bytes now
	MIDSuspComm        MID = 0x0D // socket duplication; ours: refused
	MIDSuspCommAck     MID = 0x0E // socket duplication; ours: refused
	MIDStepUp          MID = 0x40 // ours: the connection continues over the new channel
	MIDPlain           MID = 0x41 // ours: the connection continues as plain TCP
	MIDSinkAvail       MID = 0xFD // a buffer to RDMA-Write into
	MIDSrcAvail        MID = 0xFE // a buffer to RDMA-Read from
	MIDData            MID = 0xFF // payload; without any, a credit update
)

// kind is what follows from the MID alone (§6.1.1, figure 3).
type kind struct {
	name      string // "": the MID is unknown
	extension string // the draft's abbreviation for the extended header
	extLen    int    // bytes of it, 0 for none
	payload   bool   // may carry payload
	refused   string // why Parse refuses it; "" if it does not
}

// kinds has pointers because most MIDs are unknown.
var kinds = [256]*kind{
	MIDHello:           {name: "Hello", extension: "HH", extLen: HelloLen - HeaderLen, refused: "belongs to connection set-up"},
	MIDHelloAck:        {name: "HelloAck", extension: "HAH", extLen: HelloAckLen - HeaderLen, refused: "belongs to connection set-up"},
	MIDDisConn:         {name: "DisConn"},
	MIDAbortConn:       {name: "AbortConn"},
	MIDSendSm:          {name: "SendSm"},
	MIDRdmaWrCompl:     {name: "RdmaWrCompl", extension: "RWCH", extLen: 4},
	MIDRdmaRdCompl:     {name: "RdmaRdCompl", extension: "RRCH", extLen: 4},
	MIDModeChange:      {name: "ModeChange", extension: "MCH", extLen: 4},
	MIDSrcAvailCancel:  {name: "SrcAvailCancel"},
	MIDSinkAvailCancel: {name: "SinkAvailCancel"},
	MIDSinkCancelAck:   {name: "SinkCancelAck"},
	MIDChRcvBuf:        {name: "ChRcvBuf", extension: "CRBH", extLen: 4},
	MIDChRcvBufAck:     {name: "ChRcvBufAck", extension: "CRBAH", extLen: 4},
	MIDSuspComm:        {name: "SuspComm", refused: "socket duplication is not supported"},
	MIDSuspCommAck:     {name: "SuspCommAck", refused: "socket duplication is not supported"},
	MIDStepUp:          {name: "StepUp"},
	MIDPlain:           {name: "Plain"},
	MIDSinkAvail:       {name: "SinkAvail", extension: "SinkAH", extLen: 20, payload: true},
	MIDSrcAvail:        {name: "SrcAvail", extension: "SrcAH", extLen: 16, payload: true},
	MIDData:            {name: "Data", payload: true},
}

// kind returns what follows from m, also if m is unknown.
func (m MID) kind() *kind {
	if k := kinds[m]; k != nil {
		return k
	}
	return &unknown
}

var unknown kind

// String returns the draft's name of the message, or "MID 0x42" for an unknown
// one.
func (m MID) String() string {
	if name := m.kind().name; name != "" {
		return name
	}
	return fmt.Sprintf("MID %#02x", uint8(m))
}

// Flags are the header's flag bits (§6.1.2).
type Flags uint8

const (
	FlagOOBPresent Flags = 1 << iota // OOB_PRES: the last byte of this Data message is out of band
	FlagOOBPending                   // OOB_PEND: an out-of-band byte is on its way
	FlagReqPipe                      // REQ_PIPE in a completion: asks for Pipelined mode

	knownFlags = FlagOOBPresent | FlagOOBPending | FlagReqPipe
)

const (
	// HeaderLen is the length in bytes of the BSDH, which begins every message.
	HeaderLen = 16
	// MaxHeaderLen is the longest header in bytes: SinkAvail's, BSDH and
	// extension.
	MaxHeaderLen = HeaderLen + 20
	// SrcAvailLen is the length in bytes of a SrcAvail's header, BSDH and extension.
	SrcAvailLen = HeaderLen + 16
	// MinBuffer is the smallest private buffer in bytes: the longest header and
	// one byte (§10).
	MinBuffer = MaxHeaderLen + 1
	// MaxSize is the maximum value of a size field, in bytes: of an advertised
	// buffer (§6.3.2.1), of a private buffer (§6.2.1.5), or of the bytes moved.
	// If an int has 32 bits it is one less, because nothing can be larger.
	MaxSize = min(1<<31, math.MaxInt)
)

// Header is the BSDH, the Base Sockets Direct Header (§6.1).
type Header struct {
	MID   MID
	Flags Flags
	// Bufs counts the private buffers that the sender of this message had
	// posted after the message MSeqAck.
	Bufs uint16
	// Len is the length of the whole message in bytes: BSDH, extension, payload.
	Len uint32
	// MSeq numbers the messages of one direction, modulo 2³². Ours: Hello and
	// HelloAck count as 0, so that the first message after them is 1.
	MSeq uint32
	// MSeqAck is the MSeq of the last message that the sender had received.
	MSeqAck uint32
}

func (h *Header) append(b []byte) []byte {
	b = append(b, byte(h.MID), byte(h.Flags))
	b = binary.BigEndian.AppendUint16(b, h.Bufs)
	b = binary.BigEndian.AppendUint32(b, h.Len)
	b = binary.BigEndian.AppendUint32(b, h.MSeq)
	return binary.BigEndian.AppendUint32(b, h.MSeqAck)
}

// parse reads a BSDH from b, which has at least HeaderLen bytes.
func (h *Header) parse(b []byte) {
	_ = b[HeaderLen-1]
	h.MID = MID(b[0])
	h.Flags = Flags(b[1]) & knownFlags // §6.1.2: the other bits are not checked
	h.Bufs = binary.BigEndian.Uint16(b[2:])
	h.Len = binary.BigEndian.Uint32(b[4:])
	h.MSeq = binary.BigEndian.Uint32(b[8:])
	h.MSeqAck = binary.BigEndian.Uint32(b[12:])
}
