package iwarp

import (
	"encoding/binary"
	"hash/crc32"
	"sync"
)

const (
	// maxBatch is how many FPDUs leave with one write: enough to pay for the
	// system call; more only makes the socket's buffer overflow.
	maxBatch = 16
	// crcBatch is the same where each FPDU costs a CRC: with fewer, the peer
	// starts on the first while the last is still being summed.
	crcBatch = 4
	// inlineMax is the longest payload that is copied beside its header. A piece
	// of its own costs the kernel more than the copy.
	inlineMax = 4 << 10
	// scratchLen holds a batch's headers, CRCs and short payloads.
	scratchLen = 24 << 10
)

// batch is a number of FPDUs as pieces to write: headers and CRCs in scratch,
// payload where the caller has it.
type batch struct {
	pieces  [][]byte
	ends    [maxBatch]int // stream offset behind each FPDU
	n       int           // FPDUs
	total   int           // bytes
	crc     bool
	run     int // where the piece of scratch begins that is still growing
	scratch []byte
	array   [2*maxBatch + 2][]byte
}

var batchPool = sync.Pool{New: func() any {
	return &batch{scratch: make([]byte, 0, scratchLen)}
}}

// newBatch returns an empty batch from the pool; free puts it back.
func newBatch(crc bool) *batch {
	b := batchPool.Get().(*batch)
	b.pieces, b.n, b.total, b.crc, b.run, b.scratch = b.array[:0], 0, 0, crc, 0, b.scratch[:0]
	return b
}

func (b *batch) free() {
	clear(b.array[:])
	batchPool.Put(b)
}

// limit is how many FPDUs a batch should have.
func (b *batch) limit() int {
	if b.crc {
		return crcBatch
	}
	return maxBatch
}

// fits reports whether another FPDU with these headers and payload fits.
func (b *batch) fits(header, payload int) bool {
	need := maxOverhead + header
	if payload <= inlineMax {
		need += payload
	}
	return b.n < maxBatch && cap(b.scratch)-len(b.scratch) >= need
}

// add appends an FPDU: the segment's headers, header, payload. The caller has
// asked fits.
func (b *batch) add(s *segment, header, payload []byte) {
	start := len(b.scratch)
	b.scratch = s.appendTo(b.scratch, len(header)+len(payload))
	b.scratch = append(b.scratch, header...)
	ulpdu := len(b.scratch) - start - lengthLen + len(payload)
	var sum uint32
	if len(payload) <= inlineMax {
		b.scratch = append(b.scratch, payload...)
		if b.crc {
			sum = crc32.Update(0, castagnoli, b.scratch[start:])
		}
	} else {
		if b.crc {
			sum = crc32.Update(crc32.Update(0, castagnoli, b.scratch[start:]), castagnoli, payload)
		}
		b.pieces = append(b.pieces, b.scratch[b.run:], payload)
		b.run = len(b.scratch)
	}
	pad := len(b.scratch)
	b.scratch = append(b.scratch, 0, 0, 0)[:pad+padLen(ulpdu)]
	if b.crc {
		sum = crc32.Update(sum, castagnoli, b.scratch[pad:])
	}
	b.scratch = binary.LittleEndian.AppendUint32(b.scratch, sum)
	b.total += fpduLen(ulpdu)
	b.ends[b.n] = b.total
	b.n++
}

// close ends the last piece; the batch can be written then.
func (b *batch) close() [][]byte {
	if b.run < len(b.scratch) {
		b.pieces = append(b.pieces, b.scratch[b.run:])
		b.run = len(b.scratch)
	}
	return b.pieces
}

// split says what follows when only the first written bytes went: n FPDUs are
// the stream's, and what is missing of the last of them is appended to rest.
// One that has been started must be finished; the others have not been sent.
func (b *batch) split(written int, rest []byte) (n int, _ []byte) {
	for n < b.n && b.ends[n] <= written {
		n++
	}
	if n == b.n || n > 0 && b.ends[n-1] == written {
		return n, rest
	}
	return n + 1, b.appendRange(rest, written, b.ends[n])
}

// appendRange appends the bytes from one stream offset to another.
func (b *batch) appendRange(dst []byte, from, to int) []byte {
	for _, p := range b.pieces {
		if from < len(p) && to > 0 {
			dst = append(dst, p[max(from, 0):min(to, len(p))]...)
		}
		from, to = from-len(p), to-len(p)
	}
	return dst
}
