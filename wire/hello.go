package wire

import "encoding/binary"

// The version of the protocol that we speak (§6.2.1.1, §6.2.1.2). A different MajV ends the
// attempt to connect, and a different MinV does not.
const (
	MajV = 1
	MinV = 1
)

const (
	// HelloLen is the length of a Hello message in bytes.
	HelloLen = HeaderLen + 16
	// HelloAckLen is the length of a HelloAck message in bytes.
	HelloAckLen = HeaderLen + 12
	// MinBufs is the least number of private buffers that a Hello or HelloAck
	// may announce. Ours: §10.3 allows three, but a stream to such an end stops after its
	// first payload. Two credits are left, and an update is due at one (§10.5).
	MinBufs = 4
)

// Hello is the contents of a Hello (§6.2.1) or HelloAck (§6.2.2) message.
type Hello struct {
	Bufs       uint16 // private buffers posted, at least MinBufs
	MaxAdverts uint16 // advertisements that may be outstanding at the sender, at least 1
	// DesRemRcvSz is the size in bytes that the sender wants the receiver's
	// private buffers to have. 0 means any size. HelloAck has no such field.
	DesRemRcvSz uint32
	// LocalRcvSz is the size in bytes of the sender's private buffers, MinBuffer
	// to MaxSize. HelloAck calls it ActRcvSz.
	LocalRcvSz uint32
	IRD        uint16 // LocIRD: RDMA Reads that may be outstanding at the sender, at least 1
	ORD        uint16 // LocORD: RDMA Reads that the sender may have outstanding, at least 1
	MinV       uint8  // the peer's minor version; this end always sends MajV and MinV
}

// AppendHello appends h, which must be valid, as a Hello message of HelloLen bytes. It does
// not allocate if b has room.
func (h *Hello) AppendHello(b []byte) []byte {
	b = h.appendStart(b, MIDHello, HelloLen)
	b = binary.BigEndian.AppendUint32(b, h.DesRemRcvSz)
	return h.appendEnd(b)
}

// AppendHelloAck appends h, which must be valid, as a HelloAck message of HelloAckLen bytes. It
// does not allocate if b has room.
func (h *Hello) AppendHelloAck(b []byte) []byte {
	return h.appendEnd(h.appendStart(b, MIDHelloAck, HelloAckLen))
}

func (h *Hello) appendStart(b []byte, mid MID, length uint32) []byte {
	header := Header{MID: mid, Bufs: h.Bufs, Len: length}
	b = header.append(b)
	b = append(b, MajV<<4|MinV, 0)
	return binary.BigEndian.AppendUint16(b, h.MaxAdverts)
}

func (h *Hello) appendEnd(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, h.LocalRcvSz)
	b = binary.BigEndian.AppendUint16(b, h.IRD)
	return binary.BigEndian.AppendUint16(b, h.ORD)
}

// ParseHello reads the Hello message at the start of b. Bytes after its HelloLen bytes are
// ignored, because InfiniBand's connection manager pads private data with arbitrary bytes. A
// malformed message is an *Error. A valid one is parsed without allocation.
func ParseHello(b []byte) (Hello, error) {
	if err := checkStart(b, MIDHello, HelloLen); err != nil {
		return Hello{}, err
	}
	h := parseHello(b, b[24:])
	h.DesRemRcvSz = binary.BigEndian.Uint32(b[20:])
	if h.DesRemRcvSz != 0 {
		if err := checkBuffer(MIDHello, "DesRemRcvSz", h.DesRemRcvSz); err != nil {
			return Hello{}, err
		}
	}
	return h, h.check(MIDHello, "LocalRcvSz")
}

// ParseHelloAck reads the HelloAck message at the start of b, as ParseHello does a Hello.
func ParseHelloAck(b []byte) (Hello, error) {
	if err := checkStart(b, MIDHelloAck, HelloAckLen); err != nil {
		return Hello{}, err
	}
	h := parseHello(b, b[20:])
	return h, h.check(MIDHelloAck, "ActRcvSz")
}

// checkStart checks the length, the BSDH and the major version, on which the rest depends.
func checkStart(b []byte, mid MID, length int) error {
	name := mid.String()
	if len(b) < length {
		return malformed(name, "Len", "%d of %d bytes received", len(b), length)
	}
	var h Header
	h.parse(b)
	switch {
	case h.MID != mid:
		return malformed(name, "MID", "is %s", h.MID)
	case h.Len != uint32(length):
		return malformed(name, "Len", "is %d, not %d", h.Len, length)
	case h.MSeq != 0: // ours: they count as 0
		return malformed(name, "MSeq", "is %d, not 0", h.MSeq)
	case h.MSeqAck != 0:
		return malformed(name, "MSeqAck", "is %d, not 0", h.MSeqAck)
	}
	if major := b[HeaderLen] >> 4; major != MajV {
		return malformed(name, "MajV", "is %d, expected %d", major, MajV)
	}
	return nil
}

// parseHello reads the fields that Hello and HelloAck share. end begins with the size of the
// private buffers; from there both have the same layout.
func parseHello(b, end []byte) Hello {
	return Hello{
		Bufs:       binary.BigEndian.Uint16(b[2:]),
		MinV:       b[HeaderLen] & 0xF,
		MaxAdverts: binary.BigEndian.Uint16(b[18:]),
		LocalRcvSz: binary.BigEndian.Uint32(end),
		IRD:        binary.BigEndian.Uint16(end[4:]),
		ORD:        binary.BigEndian.Uint16(end[6:]),
	}
}

func (h *Hello) check(mid MID, sizeField string) error {
	name := mid.String()
	switch {
	case h.Bufs < MinBufs:
		return malformed(name, "Bufs", "is %d, at least %d are needed", h.Bufs, MinBufs)
	case h.MaxAdverts == 0:
		return malformed(name, "MaxAdverts", "is 0")
	case h.IRD == 0:
		return malformed(name, "LocIRD", "is 0")
	case h.ORD == 0:
		return malformed(name, "LocORD", "is 0")
	}
	return checkBuffer(mid, sizeField, h.LocalRcvSz)
}
