package iwarp

import "encoding/binary"

// words are what revision 2 puts before the private data (RFC 6581 §9): how many RDMA Reads may be
// outstanding in each direction, and the initiator's RTR message.
type words struct {
	peerToPeer bool // A
	rtrEmpty   bool // B: an empty FPDU
	rtrWrite   bool // C
	rtrRead    bool // D
	ird, ord   int  // of the sender; notNegotiated means unspecified
}

const (
	wordsLen      = 4
	notNegotiated = 0x3FFF

	bitPeerToPeer = 0x8000 // in IRD's word
	bitRTREmpty   = 0x4000
	bitRTRWrite   = 0x8000 // in ORD's word
	bitRTRRead    = 0x4000
)

func (w *words) appendTo(b []byte) []byte {
	ird, ord := uint16(w.ird), uint16(w.ord)
	if w.peerToPeer {
		ird |= bitPeerToPeer
	}
	if w.rtrEmpty {
		ird |= bitRTREmpty
	}
	if w.rtrWrite {
		ord |= bitRTRWrite
	}
	if w.rtrRead {
		ord |= bitRTRRead
	}
	b = binary.BigEndian.AppendUint16(b, ird)
	return binary.BigEndian.AppendUint16(b, ord)
}

// takeWords splits the frame's private data. ok is false if the frame has no words.
func (f *frame) takeWords() (w words, private []byte, ok bool, err error) {
	if f.revision == 1 || f.flags&flagEnhanced == 0 {
		return words{}, f.private, false, nil
	}
	if len(f.private) < wordsLen {
		return words{}, nil, false, badFrame(ruleEnhanced, "%d bytes of private data with S set, want at least %d", len(f.private), wordsLen)
	}
	ird, ord := binary.BigEndian.Uint16(f.private), binary.BigEndian.Uint16(f.private[2:])
	return words{
		peerToPeer: ird&bitPeerToPeer != 0,
		rtrEmpty:   ird&bitRTREmpty != 0,
		rtrWrite:   ord&bitRTRWrite != 0,
		rtrRead:    ord&bitRTRRead != 0,
		ird:        int(ird & notNegotiated),
		ord:        int(ord & notNegotiated),
	}, f.private[wordsLen:], true, nil
}

// offer returns the initiator's words. It does not offer an empty FPDU, which siw cannot parse.
func (cfg *Config) offer() words {
	ird, ord := cfg.reads()
	p := cfg.PeerToPeer
	return words{
		peerToPeer: p, rtrWrite: p, rtrRead: p,
		ird: min(ird, mostReads), ord: min(ord, mostReads),
	}
}

// answer returns the responder's answer to the initiator's words, and the RTR message that it
// chooses. It lowers IRD and ORD to what the other end can use.
func (cfg *Config) answer(w words) (reply words, rtr rtrKind) {
	if w.peerToPeer {
		switch {
		case w.rtrWrite:
			reply.peerToPeer, reply.rtrWrite, rtr = true, true, rtrWrite
		case w.rtrRead:
			reply.peerToPeer, reply.rtrRead, rtr = true, true, rtrRead
		}
	}
	ird, ord := cfg.reads()
	reply.ird, reply.ord = lower(ird, w.ord), lower(ord, w.ird)
	return reply, rtr
}

// agree checks the responder's words against the offer w, and returns what they mean for the
// initiator.
func (w words) agree(reply words) (ord int, rtr rtrKind, err error) {
	if reply.ord != notNegotiated && reply.ord > w.ird {
		return 0, rtrNone, badFrame(ruleEnhanced, "Reply's ORD of %d exceeds the IRD of %d", reply.ord, w.ird)
	}
	ord = lower(w.ord, reply.ird)
	if !reply.peerToPeer {
		return ord, rtrNone, nil
	}
	switch {
	case !w.peerToPeer:
		return 0, rtrNone, badFrame(ruleEnhanced, "Reply is peer-to-peer, which was not offered")
	case reply.rtrEmpty || reply.rtrWrite == reply.rtrRead:
		return 0, rtrNone, badFrame(ruleEnhanced, "Reply does not choose one of the offered RTR messages")
	case reply.rtrWrite:
		return ord, rtrWrite, nil
	}
	return ord, rtrRead, nil
}

// lower returns ours, or what the other end says if that is less.
func lower(ours, theirs int) int {
	if theirs == notNegotiated {
		return ours
	}
	return min(ours, theirs)
}
