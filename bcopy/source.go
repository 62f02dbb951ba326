package bcopy

import (
	"fmt"

	"github.com/gosdp/gosdp/wire"
)

// MaxBuffer is the largest private buffer, in bytes, that we ask a peer for or
// give one: one message of it is one FPDU.
const MaxBuffer = 64768 - 18

const (
	// growAt is how many messages a Write may take before larger ones are worth
	// asking for.
	growAt = 4
	// growAfter is how many bytes have to go before that. A program that writes a
	// megabyte and exits is not to be answered: over iwarp, what arrives for a socket
	// that is gone makes the kernel reset the connection.
	growAfter = 2 << 20
)

// Source is the sending half. It is not safe for concurrent use.
type Source struct {
	size  int32 // of the peer's private buffers, in bytes
	base  int32 // their size at the start, to which they return when idle
	want  int32 // the size to ask for; 0: none
	asked int32 // the size of the request that has not been answered; 0: none
	was   int32 // the peer's size when that was sent

	askedIn uint32 // MSeq of the request
	carried int32  // bytes since the buffers have had this size, up to growAfter

	connector bool
	noMore    bool // a request to grow was refused, so there may be no other (§10.6)
	noLess    bool // a request to shrink was
}

// NewSource returns the sending half of a connection whose peer has private
// buffers of size bytes. connector is true at the end that dialled.
func NewSource(size int, connector bool) Source {
	return Source{size: int32(size), base: int32(size), connector: connector}
}

// Payload returns how many bytes of the stream one Data message can carry.
func (s *Source) Payload() int { return int(s.size) - wire.HeaderLen }

// Size returns the size of the peer's private buffers, in bytes.
func (s *Source) Size() int { return int(s.size) }

// Carried tells that n bytes have gone in messages.
func (s *Source) Carried(n int) { s.carried = int32(min(int(s.carried)+n, growAfter)) }

// Wrote tells that the program has written n bytes at once. Writes that take
// many messages make the Source ask for larger buffers, once much has been written.
func (s *Source) Wrote(n int) {
	if n > growAt*s.Payload() && s.carried >= growAfter && s.size < MaxBuffer && s.want == 0 && s.asked == 0 && !s.noMore {
		s.want = MaxBuffer
	}
}

// Idle tells that the program has not written for a while, and makes the Source
// ask for buffers as small as they were at the start.
func (s *Source) Idle() {
	if s.Grown() && s.want == 0 && s.asked == 0 && !s.noLess {
		s.want, s.carried = s.base, 0
	}
}

// Grown reports that the peer's buffers are larger than they were at the start.
func (s *Source) Grown() bool { return s.size > s.base }

// Request returns the size to ask for in a ChRcvBuf, in bytes, if one is due.
func (s *Source) Request() (size int, due bool) { return int(s.want), s.want != 0 && s.asked == 0 }

// Requested tells that the ChRcvBuf goes out as message mseq. A request to shrink
// binds us at once (§10.6).
func (s *Source) Requested(mseq uint32) {
	s.askedIn = mseq
	s.asked, s.want, s.was = s.want, 0, s.size
	s.size = min(s.size, s.asked)
}

// Acked takes in a ChRcvBufAck. It returns an error if that breaks §10.6.
func (s *Source) Acked(size uint32) error {
	if s.asked == 0 {
		return fmt.Errorf("bcopy: §10.6: ChRcvBufAck without a ChRcvBuf")
	}
	asked, n := s.asked, int32(min(size, 1<<30))
	s.asked = 0
	grow := asked > s.was
	switch {
	case grow && n < s.was:
		return fmt.Errorf("bcopy: §10.6: asked to grow from %d to %d bytes, the peer's buffers shrank to %d", s.was, asked, n)
	case !grow && n < asked:
		return fmt.Errorf("bcopy: §10.6: asked to shrink to %d bytes, the peer's buffers shrank to %d", asked, n)
	case !grow && n > s.was:
		return fmt.Errorf("bcopy: §10.6: asked to shrink from %d to %d bytes, the peer's buffers grew to %d", s.was, asked, n)
	case grow && n == s.was:
		s.noMore = true
	case !grow && n > asked:
		s.noLess = true
	}
	s.size = min(n, MaxBuffer)
	return nil
}

// Crossed tells that a ChRcvBuf of the peer's has come, which acknowledges our
// messages up to ack, and reports whether it is to be answered: when it has
// crossed one of ours the accepting end drops the peer's, and the connecting end
// answers it and may ask again, because its own gets no answer (§10.6.1). A peer
// that had seen ours has not crossed it, and will answer it in its time.
func (s *Source) Crossed(ack uint32) (answer bool) {
	if s.asked == 0 || int32(ack-s.askedIn) >= 0 {
		return true
	}
	if !s.connector {
		return false
	}
	s.want, s.asked = s.asked, 0
	return true
}
