package iwarp

import (
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp/internal/nic"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
)

// placement is a tagged segment that is being placed while the rest of its FPDU has not arrived.
// Its bytes are in memory before their CRC is known, as in every RNIC that places directly. The
// CRC protects the completion, which is never delivered if the CRC is wrong.
type placement struct {
	active  bool
	seg     segment
	reg     *nic.Region // of a Write
	read    *reading    // of a Read Response
	size    int         // of the payload
	off     int         // of the next byte, in the memory
	missing int         // payload bytes that have not arrived
	tail    int         // length of the pad and CRC that follow
	sum     uint32
	crc     bool
	locked  []byte // the memory, between calls of space and got
}

// reading is an outstanding RDMA Read of this end.
type reading struct {
	id    uint64
	local []byte
	stag  uint32
	got   int
	quiet bool // it has no completion: it is the connection's RTR
}

// target finds the memory for a tagged segment with n bytes of payload.
func (q *QueuePair) target(s *segment, n int) (reg *nic.Region, read *reading, err error) {
	if s.op == opWrite {
		if n == 0 {
			return nil, nil, nil // RFC 5040 §5.1: nothing is placed, nothing is checked
		}
		q.rx.wrote = true
		reg, err = q.findRegion(s.stag, s.to, n, rdma.RemoteWrite, termTagged)
		return reg, nil, err
	}
	read = q.reads.Oldest()
	switch {
	case read == nil:
		return nil, nil, violation(termTagged, 0, "RFC 5040 §5.2", "Read Response without a Read")
	case s.stag != read.stag:
		return nil, nil, violation(termTagged, 0, "RFC 5040 §5.2", "Read Response for STag %#x, the oldest Read has %#x", s.stag, read.stag)
	case s.to != uint64(read.got):
		return nil, nil, violation(termTagged, 1, "RFC 5040 §5.2", "Read Response at offset %d, expected %d", s.to, read.got)
	case read.got+n > len(read.local) || s.last != (read.got+n == len(read.local)):
		return nil, nil, violation(termTagged, 1, "RFC 5040 §5.2", "Read Response of %d bytes at %d (last %t) for a Read of %d", n, read.got, s.last, len(read.local))
	}
	return nil, read, nil
}

// placeWhole places a segment that is complete in the chunk, and checked.
func (q *QueuePair) placeWhole(s *segment, payload []byte) error {
	reg, read, err := q.target(s, len(payload))
	if err != nil {
		return err
	}
	switch {
	case reg != nil:
		mem := reg.Hold(s.to, len(payload))
		if mem == nil {
			return errInvalidated(s)
		}
		copy(mem, payload)
		reg.Release()
	case read != nil:
		copy(read.local[read.got:], payload)
		q.readDone(s, read, len(payload))
	}
	return nil
}

func errInvalidated(s *segment) error {
	return violation(termTagged, 0, "RFC 5041 §5.3", "STag %#x was invalidated", s.stag)
}

// readDone counts n bytes of a Read, and completes the Read after the last.
func (q *QueuePair) readDone(s *segment, read *reading, n int) {
	read.got += n
	if !s.last {
		return
	}
	q.reads.Pop()
	if read.quiet {
		return
	}
	c := q.rx.completion()
	c.Op, c.ID = rdma.OpRead, read.id
	q.rx.used++
}

// beginPlacement starts to place an FPDU that is not complete in the chunk: b is what is there, of
// an ULPDU of n bytes.
func (q *QueuePair) beginPlacement(b []byte, n int) error {
	rx := &q.rx
	p := &rx.place
	var s segment
	if err := s.parse(b[mpa.LengthLen:]); err != nil {
		return err
	}
	if !rx.heard {
		rx.heard = true
		q.unsilence()
	}
	reg, read, err := q.target(&s, n-taggedLen)
	if err != nil {
		return err
	}
	*p = placement{active: true, seg: s, reg: reg, read: read,
		size: n - taggedLen, missing: n - taggedLen, tail: mpa.TrailerLen(n), crc: q.p.CRC}
	if reg != nil {
		p.off = int(s.to)
	} else {
		p.off = read.got
	}
	if p.crc {
		p.sum = mpa.Checksum(0, b[:mpa.LengthLen+taggedLen])
	}
	rx.head += mpa.LengthLen + taggedLen
	return nil
}

// lock returns the memory for the missing bytes, and holds it until unlock. It returns nil if the
// region has ended; then unlock must not be called.
func (p *placement) lock() []byte {
	if p.reg != nil {
		p.locked = p.reg.Hold(uint64(p.off), p.missing)
	} else {
		p.locked = p.read.local[p.off : p.off+p.missing]
	}
	return p.locked
}

func (p *placement) unlock() {
	p.locked = nil
	if p.reg != nil {
		p.reg.Release()
	}
}

// placed counts those of n received bytes that are in the memory, and returns their number.
func (p *placement) placed(n int) int {
	n = min(n, p.missing)
	if p.crc {
		p.sum = mpa.Checksum(p.sum, p.locked[:n])
	}
	p.off, p.missing = p.off+n, p.missing-n
	return n
}

// continuePlacement places what is in the chunk, and reports whether the FPDU is complete.
func (q *QueuePair) continuePlacement() (done bool, err error) {
	rx := &q.rx
	p := &rx.place
	if p.missing > 0 && rx.tail > rx.head {
		mem := p.lock()
		if mem == nil {
			return false, errInvalidated(&p.seg)
		}
		n := copy(mem, rx.cur.Bytes[rx.head:rx.tail])
		p.placed(n)
		p.unlock()
		rx.head += n
	}
	if p.missing > 0 {
		if p.reg != nil && p.reg.Ended() {
			return false, errInvalidated(&p.seg)
		}
		return false, nil
	}
	if rx.tail-rx.head < p.tail {
		return false, nil
	}
	trailer := rx.cur.Bytes[rx.head : rx.head+p.tail]
	if p.crc && !mpa.Intact(p.sum, trailer) {
		return false, violation(termMPA, 2, "RFC 5044 §4.4", "CRC of a tagged FPDU is wrong")
	}
	rx.head += p.tail
	seg, read, got := p.seg, p.read, p.off
	*p = placement{}
	if read != nil {
		q.readDone(&seg, read, got-read.got)
	}
	return true, nil
}
