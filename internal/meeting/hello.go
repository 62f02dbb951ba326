package meeting

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// FirstLen is how many bytes of each direction a connection keeps for the proof.
const FirstLen = 64

// Facts are what an end knows about the TCP stream.
type Facts struct {
	FirstIn, FirstOut []byte // the first bytes that were read and written, at most FirstLen
	Inherited         bool   // another process wrote what follows FirstOut: only that much can be compared
}

// hello is what each end says, helloLen bytes in the machine's order.
type hello struct {
	self, peer uint32 // process numbers, as the sender sees them; 0: not visible
	n          byte   // bytes that it has read, as far as the proof covers them
	proof      [proofLen]byte
}

const (
	version  = 1
	magic    = 0x70647367_00000000 | version // "gsdp"
	proofLen = 16
	helloLen = 8 + 4 + 4 + 1 + proofLen
)

// makeHello says what an end knows. name is that of the meeting, which keeps proofs of connections apart.
func makeHello(name string, self, peer int, f Facts) []byte {
	n := min(len(f.FirstIn), FirstLen)
	b := binary.NativeEndian.AppendUint64(make([]byte, 0, helloLen), magic)
	b = binary.NativeEndian.AppendUint32(b, uint32(self))
	b = binary.NativeEndian.AppendUint32(b, uint32(peer))
	b = append(b, byte(n))
	return append(b, prove(name, f.FirstIn[:n])...)
}

func prove(name string, first []byte) []byte {
	h := hmac.New(sha256.New, []byte(name))
	h.Write(first)
	return h.Sum(nil)[:proofLen]
}

var (
	errVersion = errors.New("peer uses another version of shared memory")
	errProof   = errors.New("peer has read other bytes than this end has written")
	errShort   = errors.New("malformed hello")
	// ErrVanished means that the peer has given the meeting up.
	ErrVanished = errors.New("peer closed the meeting")
)

// checkHello checks what the peer said. self and peer are the process numbers as this end sees them.
func checkHello(b []byte, name string, self, peer int, f Facts) error {
	if len(b) != helloLen {
		return errShort
	}
	if binary.NativeEndian.Uint64(b) != magic {
		return errVersion
	}
	theirs := hello{
		self: binary.NativeEndian.Uint32(b[8:]), peer: binary.NativeEndian.Uint32(b[12:]),
		n: b[16],
	}
	copy(theirs.proof[:], b[17:])
	if int(theirs.self) != peer || int(theirs.peer) != self || peer == 0 {
		return fmt.Errorf("peer is process %d and sees process %d, this end sees %d and is %d", theirs.self, theirs.peer, peer, self)
	}
	switch {
	case int(theirs.n) > len(f.FirstOut) && f.Inherited:
		return nil
	case int(theirs.n) > len(f.FirstOut) || !hmac.Equal(theirs.proof[:], prove(name, f.FirstOut[:theirs.n])):
		return errProof
	}
	return nil
}
