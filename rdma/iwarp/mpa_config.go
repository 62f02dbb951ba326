package iwarp

import "net"

// Config is what a caller wants of a queue pair. The zero value asks for
// revision 1 with CRC.
type Config struct {
	// Revision of MPA that an initiator speaks: 1 (RFC 5044) or 2 (RFC 6581); 0
	// means 1. A responder speaks the Request's.
	Revision int
	// NoCRC does not ask for CRC32C; it is in use all the same if the peer asks.
	NoCRC bool
	// PeerToPeer is RFC 6581 §9.1's model, in which the initiator sends a
	// zero-length message (RTR) on its own, so that the responder may be the
	// first to send one of the program's. The initiator offers an RDMA Write and
	// an RDMA Read for it; without revision 2 it has no effect. A responder
	// always takes the model if it is offered, since siw terminates a connection
	// on which it is not.
	PeerToPeer bool
	// IRD and ORD are how many RDMA Reads the peer may have outstanding here,
	// and we there. 0 means 16. Revision 2 negotiates them, and names at most
	// 128; revision 1 has no field for them and takes them as they are.
	IRD, ORD int
	// MaxULPDU is how many bytes the FPDUs that we send carry, 128 to 65,535. 0
	// means what fits into one TCP segment, as RFC 5044 §4.5 wishes. Any length
	// is received.
	MaxULPDU int
}

// SoftwareULPDU is the MaxULPDU for a peer that is a software RNIC too: there is
// no hardware then that wants an FPDU in each TCP segment, and long ones cost
// less.
const SoftwareULPDU = 64768

const (
	defaultReads = 16
	// mostReads is what an initiator names at most; hardware takes no more.
	mostReads = 128
	// minULPDU is the least that MPA may cut to, RFC 5044 §4.5.
	minULPDU = 128
)

func (cfg *Config) revision() int {
	if cfg.Revision == 0 {
		return 1
	}
	return cfg.Revision
}

// reads returns IRD and ORD with their default filled in.
func (cfg *Config) reads() (ird, ord int) {
	ird, ord = cfg.IRD, cfg.ORD
	if ird == 0 {
		ird = defaultReads
	}
	if ord == 0 {
		ord = defaultReads
	}
	return ird, ord
}

// maxULPDU returns how many bytes an FPDU on c carries: RFC 5044 §4.5 without
// markers.
func (cfg *Config) maxULPDU(c net.Conn) int {
	n := cfg.MaxULPDU
	if n == 0 {
		mss := segmentSize(c)
		n = mss - lengthLen - crcLen - mss%4
	}
	return min(max(n, minULPDU), maxULPDU)
}

// params is what the two ends have agreed on.
type params struct {
	initiator bool
	crc       bool
	ird, ord  int
	maxULPDU  int
	rtr       rtrKind
}

// rtrKind is the message that the initiator sends on its own, before any of the
// program's, and that the responder keeps to itself (RFC 6581 §5).
type rtrKind uint8

const (
	rtrNone  rtrKind = iota
	rtrWrite         // a zero-length RDMA Write
	rtrRead          // a zero-length RDMA Read
)
