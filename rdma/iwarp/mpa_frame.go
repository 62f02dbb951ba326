package iwarp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/gosdp/gosdp/rdma"
)

// KeyLen is the length in bytes of the key at the start of an MPA Request or Reply.
const KeyLen = 16

// RequestKey is the start of an MPA Request Frame (RFC 5044 §7.1.1), KeyLen bytes long. Servers
// that share a port between MPA and other protocols compare with it.
const RequestKey = "MPA ID Req Frame"

const replyKey = "MPA ID Rep Frame"

// A frame is an MPA Request or Reply (RFC 5044 §7.1.1): the key, the flags, the revision, and the
// private data preceded by its length.
type frame struct {
	flags    byte
	revision int
	private  []byte // including the words of revision 2
}

const (
	flagMarkers  = 0x80 // M: the sender must receive markers
	flagCRC      = 0x40 // C: the sender asks for CRC
	flagRejected = 0x20 // R: no connection
	flagEnhanced = 0x10 // S: the private data begins with revision 2's words
)

const (
	frameHeaderLen = KeyLen + 4
	// maxPrivate bounds what this end receives, RFC 5044 §7.1.1.
	maxPrivate = 512
	// maxOwnPrivate bounds what this end sends: siw and c4iw stop at 256, and the kernel's field
	// has 8 bits.
	maxOwnPrivate = 255
)

const (
	ruleFrame    = "RFC 5044 §7.1.1"
	ruleEnhanced = "RFC 6581 §9"
)

func badFrame(rule, format string, args ...any) error {
	return &rdma.ProtocolError{Rule: rule, What: fmt.Sprintf(format, args...)}
}

// NotMPAError means that the peer does not speak MPA: it sent something else where an MPA frame
// should begin.
type NotMPAError struct {
	Got []byte // its first bytes, 1 to KeyLen
}

// Error quotes the bytes.
func (e *NotMPAError) Error() string {
	return fmt.Sprintf("iwarp: not an MPA frame: %q", e.Got)
}

// write sends the frame with a single Write, because siw drops a connection if a frame arrives in
// pieces.
func (f *frame) write(c net.Conn, key string) error {
	if len(f.private) > maxOwnPrivate {
		return fmt.Errorf("iwarp: private data of %d bytes exceeds the maximum of %d", len(f.private), maxOwnPrivate)
	}
	b := make([]byte, 0, frameHeaderLen+len(f.private))
	b = append(b, key...)
	b = append(b, f.flags, byte(f.revision))
	b = binary.BigEndian.AppendUint16(b, uint16(len(f.private)))
	b = append(b, f.private...)
	if _, err := c.Write(b); err != nil {
		return fmt.Errorf("iwarp: write MPA frame: %w", err)
	}
	return nil
}

// readFrame reads one frame and not a byte more: FPDUs may follow it. It returns a *NotMPAError at
// the first byte that differs from key, and a *rdma.ProtocolError for a frame that cannot be
// accepted. If the frame is cut short, it returns the reader's error or io.ErrUnexpectedEOF;
// io.EOF if there was no byte at all.
func readFrame(r io.Reader, key string) (*frame, error) {
	var header [frameHeaderLen]byte
	n, err := readKey(r, header[:], key) // the whole header, which takes one Read
	if err != nil {
		return nil, cutShort(n, frameHeaderLen, err)
	}
	f := &frame{flags: header[KeyLen], revision: int(header[KeyLen+1])}
	length := int(binary.BigEndian.Uint16(header[KeyLen+2:]))
	switch {
	case f.revision != 1 && f.revision != 2:
		return nil, badFrame(ruleFrame, "MPA revision %d", f.revision)
	case f.flags&flagMarkers != 0:
		return nil, badFrame("RFC 5044 §4.3", "MPA markers are required, but not supported")
	case length > maxPrivate:
		return nil, badFrame(ruleFrame, "%d bytes of private data exceed the maximum of %d", length, maxPrivate)
	}
	f.private = make([]byte, length)
	if n, err := io.ReadFull(r, f.private); err != nil {
		return nil, cutShort(frameHeaderLen+n, frameHeaderLen+length, err)
	}
	return f, nil
}

// readKey fills b with the key and what follows it. It checks after every Read, because a peer that
// does not know MPA may send less than the key and then wait.
func readKey(r io.Reader, b []byte, key string) (n int, err error) {
	for n < len(b) {
		more, err := r.Read(b[n:])
		n += more
		if got := min(n, len(key)); string(b[:got]) != key[:got] {
			return n, &NotMPAError{Got: b[:got]}
		}
		if err != nil && n < len(b) {
			return n, err
		}
	}
	return n, nil
}

// cutShort explains why only n of want bytes arrived. If there was none, err says everything.
func cutShort(n, want int, err error) error {
	var other *NotMPAError
	if n == 0 || errors.As(err, &other) {
		return err
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("iwarp: MPA frame truncated after %d of %d bytes: %w", n, want, err)
}
