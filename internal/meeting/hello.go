//go:build linux

package meeting

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// FirstLen is how many bytes of each direction a connection keeps for the proof.
	FirstLen = 64
	// leastApart is how many bytes a proof must cover, in both directions together, if the ends meet in a directory: there the
	// address of the dialler alone has brought them together.
	leastApart = 16
)

// Facts are what an end knows about the TCP stream.
type Facts struct {
	FirstIn, FirstOut []byte // the first bytes that were read and written, at most FirstLen
	Inherited         bool   // what follows FirstOut was written unseen, by another process or the kernel
	Moments           *Moments
}

// counts are what the kernel has counted on a connection at one moment: bytes that the program has written, those of them
// that the peer's kernel has acknowledged, at least, and bytes that have arrived.
type counts struct{ written, acked, received uint64 }

// view is how an end sees a connection.
type view struct {
	name       string // of the meeting; it keeps proofs of connections apart
	apart      bool   // the ends may be in different network namespaces
	self, peer int    // process numbers
	numbers    uint64 // the namespace of these; 0: not known
	Facts
	counts
}

const (
	version  = 1
	magic    = 0x70647367_00000000 | version // "gsdp"
	proofLen = 16

	// What an end says has helloLen bytes, in the machine's order: magic, the process numbers and their namespace, the counts,
	// the moments of reads and of writes, how many bytes that it has read the proof covers, and the proof.
	countsAt = 8 + 4 + 4 + 8
	readsAt  = countsAt + 3*8
	writesAt = readsAt + momentsLen
	nAt      = writesAt + momentsLen
	helloLen = nAt + 1 + proofLen
)

// hello says what an end sees.
func (v view) hello() []byte {
	n := min(len(v.FirstIn), FirstLen)
	b := binary.NativeEndian.AppendUint64(make([]byte, 0, helloLen), magic)
	b = binary.NativeEndian.AppendUint32(b, uint32(v.self))
	b = binary.NativeEndian.AppendUint32(b, uint32(v.peer))
	b = binary.NativeEndian.AppendUint64(b, v.numbers)
	b = binary.NativeEndian.AppendUint64(b, v.written)
	b = binary.NativeEndian.AppendUint64(b, v.acked)
	b = binary.NativeEndian.AppendUint64(b, v.received)
	reads, writes := v.moments()
	b = appendMoments(appendMoments(b, reads), writes)
	b = append(b, byte(n))
	return append(b, prove(v.name, v.FirstIn[:n])...)
}

// moments returns what the program has noted.
func (v view) moments() (reads, writes [mostMoments]moment) {
	if v.Moments == nil {
		return reads, writes
	}
	return v.Moments.reads.list(), v.Moments.writes.list()
}

func prove(name string, first []byte) []byte {
	h := hmac.New(sha256.New, []byte(name))
	h.Write(first)
	return h.Sum(nil)[:proofLen]
}

var (
	errVersion = errors.New("peer uses another version of shared memory")
	errProof   = errors.New("peer has read other bytes than this end has written")
	errCounts  = errors.New("peer has counted other bytes than this end")
	errMoments = errors.New("peer has read bytes before this end wrote them, or the reverse")
	errUnseen  = errors.New("this end has not seen what was written first")
	errShort   = errors.New("malformed hello")
	// ErrVanished means that the peer has given the meeting up.
	ErrVanished = errors.New("peer closed the meeting")
	// ErrEarly means that too little has gone through the connection to meet in a directory.
	ErrEarly = errors.New("connection between containers is too young to share memory")
)

// check checks what the peer said. The view must be later than that.
func (v view) check(b []byte) error {
	if len(b) != helloLen {
		return errShort
	}
	if binary.NativeEndian.Uint64(b) != magic {
		return errVersion
	}
	self, peer := int(binary.NativeEndian.Uint32(b[8:])), int(binary.NativeEndian.Uint32(b[12:]))
	numbers := binary.NativeEndian.Uint64(b[16:])
	if v.numbers == numbers && numbers != 0 && (self != v.peer || peer != v.self || v.peer == 0) {
		return fmt.Errorf("peer is process %d and sees process %d, this end sees %d and is %d", self, peer, v.peer, v.self)
	}
	acked, received := binary.NativeEndian.Uint64(b[countsAt+8:]), binary.NativeEndian.Uint64(b[countsAt+16:])
	if received > v.written || acked > v.received {
		return errCounts
	}
	reads, writes := v.moments()
	if !causal(writes, momentsOf(b[readsAt:])) || !causal(momentsOf(b[writesAt:]), reads) {
		return errMoments
	}
	n := int(b[nAt])
	switch {
	case v.apart && n+len(v.FirstIn) < leastApart:
		return ErrEarly
	case n > len(v.FirstOut) && v.Inherited && v.apart:
		return errUnseen
	case n > len(v.FirstOut) && v.Inherited:
		return nil
	case n > len(v.FirstOut) || !hmac.Equal(b[nAt+1:], prove(v.name, v.FirstOut[:n])):
		return errProof
	}
	return nil
}
