package iwarp

import (
	"sync"

	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
)

const (
	// maxBatch is how many FPDUs one write sends: enough to pay for the system call. More would
	// only overflow the socket's buffer.
	maxBatch = 16
	// crcBatch is maxBatch for a connection with CRCs. With smaller batches, the peer starts on
	// the first FPDU while the last is still being summed.
	crcBatch = 4
	// inlineMax is the longest payload that is copied next to its header. A separate piece costs
	// the kernel more than the copy.
	inlineMax = 4 << 10
	// scratchLen holds a batch's headers, CRCs and short payloads.
	scratchLen = 24 << 10
)

// batch is a list of FPDUs as pieces to write. Headers, CRCs and short payloads are in scratch,
// long payloads in the caller's memory.
type batch struct {
	pieces  [][]byte
	ends    [maxBatch]int // stream offset of the end of each FPDU
	n       int           // FPDUs
	total   int           // bytes
	crc     bool
	run     int // where in scratch the unfinished piece begins
	scratch []byte
	array   [2*maxBatch + 2][]byte
}

var batchPool = sync.Pool{New: func() any {
	return &batch{scratch: make([]byte, 0, scratchLen)}
}}

// newBatch returns an empty batch from the pool; free returns it there.
func newBatch(crc bool) *batch {
	b := batchPool.Get().(*batch)
	b.pieces, b.n, b.total, b.crc, b.run, b.scratch = b.array[:0], 0, 0, crc, 0, b.scratch[:0]
	return b
}

func (b *batch) free() {
	clear(b.array[:])
	batchPool.Put(b)
}

// limit is the number of FPDUs that a batch should have.
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

// add appends an FPDU made of the segment's headers, header and payload. The caller has checked
// with fits.
func (b *batch) add(s *segment, header, payload []byte) {
	start := len(b.scratch)
	b.scratch = s.appendTo(b.scratch, len(header)+len(payload))
	b.scratch = append(b.scratch, header...)
	ulpdu := len(b.scratch) - start - mpa.LengthLen + len(payload)
	var sum uint32
	if len(payload) <= inlineMax {
		b.scratch = append(b.scratch, payload...)
		if b.crc {
			sum = mpa.Checksum(0, b.scratch[start:])
		}
	} else {
		if b.crc {
			sum = mpa.Checksum(mpa.Checksum(0, b.scratch[start:]), payload)
		}
		b.pieces = append(b.pieces, b.scratch[b.run:], payload)
		b.run = len(b.scratch)
	}
	b.scratch = mpa.AppendTrailer(b.scratch, ulpdu, b.crc, sum)
	b.total += mpa.FPDULen(ulpdu)
	b.ends[b.n] = b.total
	b.n++
}

// close ends the last piece. The batch can be written then.
func (b *batch) close() [][]byte {
	if b.run < len(b.scratch) {
		b.pieces = append(b.pieces, b.scratch[b.run:])
		b.run = len(b.scratch)
	}
	return b.pieces
}

// split is called when only the first written bytes were sent. It returns how many FPDUs the
// stream has accepted, at least in part, and appends the missing bytes of the last of them to
// rest: an FPDU that was started must be finished. The others have not been sent.
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
