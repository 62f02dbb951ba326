// Package mpa is MPA (RFC 5044) with revision 2 (RFC 6581): the negotiation at the start of a
// connection, and the frames (FPDUs) in which it carries the segments of DDP after that. It turns
// bytes into meaning and meaning into bytes, and does no I/O. frame.go has the rules by which a
// Request or Reply is refused.
package mpa

import (
	"encoding/binary"
	"fmt"

	"github.com/gosdp/gosdp/rdma"
)

// KeyLen is the length in bytes of the key at the start of a Request or Reply.
const KeyLen = 16

// RequestKey is the start of a Request (RFC 5044 §7.1.1), KeyLen bytes long. Servers that share a
// port between MPA and other protocols compare with it.
const RequestKey = "MPA ID Req Frame"

const replyKey = "MPA ID Rep Frame"

// A frame is a Request or Reply (RFC 5044 §7.1.1): the key, the flags, the revision, and the
// private data preceded by its length.
type frame struct {
	flags    byte
	revision int
	length   int    // of the private data with the words
	words    words  // of revision 2 with S
	private  []byte // after the words
}

// words are what revision 2 puts before the private data (RFC 6581 §9): how many RDMA Reads may be
// outstanding in each direction, and the initiator's RTR message.
type words struct{ ird, ord uint16 }

const (
	wordsLen      = 4
	bitPeerToPeer = 0x8000 // A, in IRD's word
	bitRTREmpty   = 0x4000 // B: an empty FPDU
	bitRTRWrite   = 0x8000 // C, in ORD's word
	bitRTRRead    = 0x4000 // D
	readsMask     = 0x3FFF
	notNegotiated = readsMask
)

const (
	flagMarkers  = 0x80 // M: the sender must receive markers
	flagCRC      = 0x40 // C: the sender asks for CRC
	flagRejected = 0x20 // R: no connection
	flagEnhanced = 0x10 // S: the private data begins with revision 2's words
)

const (
	headerLen = KeyLen + 4
	// maxPrivate bounds what this end receives, RFC 5044 §7.1.1.
	maxPrivate = 512
	// maxOwnPrivate bounds what this end sends: siw and c4iw stop at 256, and the kernel's field
	// has 8 bits.
	maxOwnPrivate = 255
)

// NotMPAError means that the peer does not speak MPA: it sent something else where a Request or
// Reply should begin.
type NotMPAError struct {
	Got []byte // its first bytes, 1 to KeyLen
}

// Error quotes the bytes.
func (e *NotMPAError) Error() string { return fmt.Sprintf("mpa: not an MPA frame: %q", e.Got) }

// check returns an error if the frame must be refused. It is called when the header has arrived
// and again when the words have. request is what a Reply answers, and nil if the frame is a Request
// itself. The table in docs/protocol.md has the same rules; whatever no rule names is accepted.
func (f *frame) check(request *frame) error {
	const start, markers, enhanced = "RFC 5044 §7.1.1", "RFC 5044 §4.3", "RFC 6581 §9"
	w, asked := f.words, words{}
	if request != nil {
		asked = request.words
	}
	switch {
	case f.revision != 1 && f.revision != 2:
		return refuse(start, "MPA revision %d", f.revision)
	case f.flags&flagMarkers != 0:
		return refuse(markers, "MPA markers are required, but not supported")
	case f.length > maxPrivate:
		return refuse(start, "%d bytes of private data exceed the maximum of %d", f.length, maxPrivate)
	case f.enhanced() && f.length < wordsLen:
		return refuse(enhanced, "%d bytes of private data with S set, want at least %d", f.length, wordsLen)

	case request == nil:
	case f.revision != request.revision:
		return refuse(start, "Reply has MPA revision %d, want %d", f.revision, request.revision)

	case f.rejected():
	case request.enhanced() && !f.enhanced():
		return refuse(enhanced, "Reply of revision 2 without S")
	case w.ord&readsMask != notNegotiated && w.ord&readsMask > asked.ird&readsMask:
		return refuse(enhanced, "Reply's ORD of %d exceeds the IRD of %d", w.ord&readsMask, asked.ird&readsMask)
	case w.ird&bitPeerToPeer == 0:
	case asked.ird&bitPeerToPeer == 0:
		return refuse(enhanced, "Reply is peer-to-peer, which was not offered")
	case w.ird&bitRTREmpty != 0 || (w.ord&bitRTRWrite == 0) == (w.ord&bitRTRRead == 0):
		return refuse(enhanced, "Reply does not choose one of the offered RTR messages")
	}
	return nil
}

func refuse(rule, format string, args ...any) error {
	return &rdma.ProtocolError{Rule: rule, What: fmt.Sprintf(format, args...)}
}

// enhanced reports whether the frame has words. In revision 1, S is a reserved bit.
func (f *frame) enhanced() bool { return f.revision == 2 && f.flags&flagEnhanced != 0 }

func (f *frame) rejected() bool { return f.flags&flagRejected != 0 }

// parse reads a frame from b, which is all that has arrived so far. missing is how many bytes the
// frame needs at least beyond that, and 0 if it is whole. The error is a *NotMPAError from the
// first byte on that differs from key, and that of check.
func (f *frame) parse(b []byte, key string, request *frame) (missing int, err error) {
	if got := min(len(b), KeyLen); string(b[:got]) != key[:got] {
		return 0, &NotMPAError{Got: b[:got]}
	}
	if len(b) < headerLen {
		return headerLen - len(b), nil
	}
	*f = frame{
		flags:    b[KeyLen],
		revision: int(b[KeyLen+1]),
		length:   int(binary.BigEndian.Uint16(b[KeyLen+2:])),
	}
	if err := f.check(request); err != nil {
		return 0, err
	}
	if missing := headerLen + f.length - len(b); missing > 0 {
		return missing, nil
	}
	f.private = b[headerLen : headerLen+f.length]
	if f.enhanced() {
		f.words.ird, f.words.ord = binary.BigEndian.Uint16(f.private), binary.BigEndian.Uint16(f.private[2:])
		f.private = f.private[wordsLen:]
	}
	return 0, f.check(request)
}

// bytes returns the frame as it is sent.
func (f *frame) bytes(key string) ([]byte, error) {
	length := len(f.private)
	if f.enhanced() {
		length += wordsLen
	}
	if length > maxOwnPrivate {
		return nil, fmt.Errorf("mpa: private data of %d bytes exceeds the maximum of %d", length, maxOwnPrivate)
	}
	b := make([]byte, 0, headerLen+length)
	b = append(b, key...)
	b = append(b, f.flags, byte(f.revision))
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	if f.enhanced() {
		b = binary.BigEndian.AppendUint16(b, f.words.ird)
		b = binary.BigEndian.AppendUint16(b, f.words.ord)
	}
	return append(b, f.private...), nil
}
