package mpa

// Config is what an end wants. The zero value asks for revision 1 with CRC.
type Config struct {
	// Revision is the revision of MPA that an initiator uses: 1 (RFC 5044) or 2 (RFC 6581); 0
	// means 1. A responder uses that of the Request.
	Revision int
	// NoCRC means that this end does not ask for CRC32C. It is used nevertheless if the peer asks.
	NoCRC bool
	// PeerToPeer selects the model of RFC 6581 §9.1, in which the initiator sends a zero-length
	// message (RTR) of its own, so that the responder may send the program's first message. The
	// initiator offers an RDMA Write and an RDMA Read for it. It has no effect without revision
	// 2. A responder always accepts this model, because siw terminates a connection otherwise.
	PeerToPeer bool
	// IRD and ORD are how many RDMA Reads the peer and this end may have outstanding. 0 means
	// 16. Revision 2 negotiates them and can express at most 128; revision 1 has no field for
	// them and uses them as they are.
	IRD, ORD int
	// MaxULPDU is how many bytes an FPDU that this end sends carries, 128 to 65,535. 0 means as
	// many as fit into one TCP segment, as RFC 5044 §4.5 recommends. FPDUs of any length are
	// received.
	MaxULPDU int
}

// SoftwareULPDU is the MaxULPDU for a peer that is a software RNIC too: no hardware needs one
// FPDU in each TCP segment, and long ones cost less.
const SoftwareULPDU = 64768

const (
	defaultReads = 16
	// mostReads is the most that revision 2 asks for; hardware accepts no more.
	mostReads = 128
	// minULPDU is the smallest MaxULPDU that MPA allows, RFC 5044 §4.5.
	minULPDU = 128
)

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

// ULPDU returns how many bytes an FPDU carries on a connection whose TCP segments have mss bytes
// (RFC 5044 §4.5, without markers).
func (cfg *Config) ULPDU(mss int) int {
	n := cfg.MaxULPDU
	if n == 0 {
		n = mss - LengthLen - CRCLen - mss%4
	}
	return min(max(n, minULPDU), MaxULPDU)
}

// Params is what the two ends have agreed on.
type Params struct {
	CRC      bool
	IRD, ORD int
	RTR      RTR
}

// RTR is the message that the initiator sends before the program's first, and that the responder
// does not deliver (RFC 6581 §5).
type RTR uint8

const (
	RTRNone  RTR = iota
	RTRWrite     // a zero-length RDMA Write
	RTRRead      // a zero-length RDMA Read
)
