package mpa

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

// parseWords reads the words at the start of b, which has wordsLen bytes or more.
func parseWords(b []byte) words {
	ird, ord := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	return words{
		peerToPeer: ird&bitPeerToPeer != 0,
		rtrEmpty:   ird&bitRTREmpty != 0,
		rtrWrite:   ord&bitRTRWrite != 0,
		rtrRead:    ord&bitRTRRead != 0,
		ird:        int(ird & notNegotiated),
		ord:        int(ord & notNegotiated),
	}
}

// rtr returns the message that the words of a Reply choose.
func (w *words) rtr() RTR {
	switch {
	case !w.peerToPeer:
		return RTRNone
	case w.rtrWrite:
		return RTRWrite
	}
	return RTRRead
}

// lower returns ours, or what the other end says if that is less.
func lower(ours, theirs int) int {
	if theirs == notNegotiated {
		return ours
	}
	return min(ours, theirs)
}
