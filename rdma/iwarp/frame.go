package iwarp

import (
	"encoding/binary"
	"fmt"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
)

// The ULPDU of an FPDU is one DDP segment: the DDP and RDMAP headers (RFC 5041 §4, RFC 5040 §4),
// then payload.
const (
	taggedLen   = 14
	untaggedLen = 18

	// maxOverhead is what an FPDU adds to a Send's payload: length, headers, pad, CRC.
	maxOverhead = mpa.LengthLen + untaggedLen + 3 + mpa.CRCLen
)

const (
	ddpTagged    = 0x80
	ddpLast      = 0x40
	ddpVersion   = 0x01
	ddpVerMask   = 0x03
	rdmapVersion = 0x40
	rdmapVerMask = 0xC0
	opcodeMask   = 0x0F
)

// opcode is an RDMAP opcode, RFC 5040 §4.3.
type opcode uint8

const (
	opWrite opcode = iota
	opReadRequest
	opReadResponse
	opSend
	opSendInvalidate
	opSendSolicited
	opSendSolicitedInvalidate
	opTerminate
)

// The queue numbers of untagged segments, RFC 5040 §4.1.
const (
	queueSend      = 0
	queueRead      = 1
	queueTerminate = 2
)

// segment is the header of one DDP segment.
type segment struct {
	tagged, last bool
	op           opcode
	stag         uint32 // tagged: the buffer; Send with Invalidate: the STag to revoke
	to           uint64 // tagged: offset in the buffer
	qn, msn, mo  uint32 // untagged: queue, message, offset in the message
}

// headerLen is the length of the DDP and RDMAP headers that begin with this control byte.
func headerLen(control byte) int {
	if control&ddpTagged != 0 {
		return taggedLen
	}
	return untaggedLen
}

// appendTo appends the headers, and before them the length of the ULPDU with n bytes of payload.
func (s *segment) appendTo(b []byte, n int) []byte {
	control := byte(ddpVersion)
	if s.last {
		control |= ddpLast
	}
	rdmap := rdmapVersion | byte(s.op)
	if s.tagged {
		b = binary.BigEndian.AppendUint16(b, uint16(taggedLen+n))
		b = append(b, control|ddpTagged, rdmap)
		b = binary.BigEndian.AppendUint32(b, s.stag)
		return binary.BigEndian.AppendUint64(b, s.to)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(untaggedLen+n))
	b = append(b, control, rdmap)
	b = binary.BigEndian.AppendUint32(b, s.stag)
	b = binary.BigEndian.AppendUint32(b, s.qn)
	b = binary.BigEndian.AppendUint32(b, s.msn)
	return binary.BigEndian.AppendUint32(b, s.mo)
}

// parse reads the headers at the start of an ULPDU, which has at least headerLen bytes.
func (s *segment) parse(b []byte) error {
	control, rdmap := b[0], b[1]
	if v := control & ddpVerMask; v != ddpVersion {
		t := termUntagged
		if control&ddpTagged != 0 {
			t = termTagged
		}
		return violation(t, codeDDPVersion(t), "RFC 5041 §7.1", "DDP version %d", v)
	}
	if v := rdmap & rdmapVerMask; v != rdmapVersion {
		return violation(termRDMAPOperation, 5, "RFC 5040 §4.1", "RDMAP version %d", v>>6)
	}
	s.tagged = control&ddpTagged != 0
	s.last = control&ddpLast != 0
	s.op = opcode(rdmap & opcodeMask)
	s.stag = binary.BigEndian.Uint32(b[2:])
	if tagged := s.op == opWrite || s.op == opReadResponse; s.op > opTerminate || tagged != s.tagged {
		return violation(termRDMAPOperation, 6, "RFC 5040 §4.3", "opcode %d with tagged=%t", s.op, s.tagged)
	}
	if s.tagged {
		s.to = binary.BigEndian.Uint64(b[6:])
		return nil
	}
	s.qn = binary.BigEndian.Uint32(b[6:])
	s.msn = binary.BigEndian.Uint32(b[10:])
	s.mo = binary.BigEndian.Uint32(b[14:])
	return nil
}

// readRequest is the payload of an RDMA Read Request, RFC 5040 §4.4.
type readRequest struct {
	sinkSTag uint32
	sinkTO   uint64
	size     uint32
	srcSTag  uint32
	srcTO    uint64
}

const readRequestLen = 28

func (r *readRequest) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, r.sinkSTag)
	b = binary.BigEndian.AppendUint64(b, r.sinkTO)
	b = binary.BigEndian.AppendUint32(b, r.size)
	b = binary.BigEndian.AppendUint32(b, r.srcSTag)
	return binary.BigEndian.AppendUint64(b, r.srcTO)
}

func (r *readRequest) parse(b []byte) {
	r.sinkSTag = binary.BigEndian.Uint32(b)
	r.sinkTO = binary.BigEndian.Uint64(b[4:])
	r.size = binary.BigEndian.Uint32(b[12:])
	r.srcSTag = binary.BigEndian.Uint32(b[16:])
	r.srcTO = binary.BigEndian.Uint64(b[20:])
}

// terminateKind is layer<<4 | error type of a Terminate, RFC 5040 §4.8.
type terminateKind uint8

const (
	termRDMAPProtection terminateKind = 0x01
	termRDMAPOperation  terminateKind = 0x02
	termTagged          terminateKind = 0x11
	termUntagged        terminateKind = 0x12
	termMPA             terminateKind = 0x20
)

// codeDDPVersion is the code of "invalid DDP version", which has a different number in each of
// the two buffer models (RFC 5041 §7.2).
func codeDDPVersion(k terminateKind) uint8 {
	if k == termTagged {
		return 4
	}
	return 6
}

// fault is a violation by the peer, with what the Terminate says about it.
type fault struct {
	rdma.ProtocolError
	kind terminateKind
	code uint8
}

func violation(kind terminateKind, code uint8, rule, format string, args ...any) error {
	return &fault{rdma.ProtocolError{Rule: rule, What: fmt.Sprintf(format, args...)}, kind, code}
}

// appendTerminate appends the payload of a Terminate for f. ulpdu is the offending segment, from
// its DDP header on and as far as it is known, and length is its full length. ulpdu is nil if
// the stream itself is damaged.
func appendTerminate(b []byte, f *fault, ulpdu []byte, length int) []byte {
	const (
		hasLength = 0x80 // M
		hasDDP    = 0x40 // D
		hasRDMAP  = 0x20 // R
	)
	var bits byte
	var headers int
	if f.kind != termMPA && len(ulpdu) >= taggedLen && len(ulpdu) >= headerLen(ulpdu[0]) {
		bits, headers = hasLength|hasDDP, headerLen(ulpdu[0])
		if opcode(ulpdu[1]&opcodeMask) == opReadRequest && len(ulpdu) >= untaggedLen+readRequestLen {
			bits, headers = bits|hasRDMAP, untaggedLen+readRequestLen
		}
	}
	b = append(b, byte(f.kind), f.code, bits, 0)
	if bits != 0 {
		b = binary.BigEndian.AppendUint16(b, uint16(length))
		b = append(b, ulpdu[:headers]...)
	}
	return b
}

func parseTerminate(b []byte) *rdma.TerminateError {
	if len(b) < 2 {
		return &rdma.TerminateError{}
	}
	return &rdma.TerminateError{Layer: b[0] >> 4, Type: b[0] & 0x0F, Code: b[1]}
}
