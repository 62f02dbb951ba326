package bcopy

import (
	"fmt"

	"github.com/gosdp/gosdp/wire"
)

// MaxBuffer is the size of the largest private buffer that this library asks for or grants, in
// bytes. A message that fills it is one FPDU.
const MaxBuffer = 64768 - 18

const (
	// growAt is how many messages a Write may need before larger buffers are worth asking for.
	growAt = 4
	// growAfter is how many bytes must be sent before that. A program that writes a megabyte
	// and exits must get no answer: over iwarp, a message that arrives for a closed socket
	// makes the kernel reset the connection.
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

// NewSource returns the sending half of a connection whose peer has private buffers of size
// bytes. connector is true at the end that dialled.
func NewSource(size int, connector bool) Source {
	return Source{size: int32(size), base: int32(size), connector: connector}
}

// Payload returns how many bytes of the stream fit into one Data message.
func (s *Source) Payload() int { return int(s.size) - wire.HeaderLen }

// Size returns the size of the peer's private buffers, in bytes.
func (s *Source) Size() int { return int(s.size) }

// Carried notes that n bytes were sent in messages.
func (s *Source) Carried(n int) { s.carried = int32(min(int(s.carried)+n, growAfter)) }

// Wrote notes that the program has written n bytes at once. After much was sent, a Write that
// needs many messages makes the Source ask for larger buffers.
func (s *Source) Wrote(n int) {
	if n > growAt*s.Payload() && s.carried >= growAfter && s.size < MaxBuffer && s.want == 0 && s.asked == 0 && !s.noMore {
		s.want = MaxBuffer
	}
}

// Idle notes that the program has not written for a while, and makes the Source ask for
// buffers of the size that they had at the start.
func (s *Source) Idle() {
	if s.Grown() && s.want == 0 && s.asked == 0 && !s.noLess {
		s.want, s.carried = s.base, 0
	}
}

// Grown reports whether the peer's buffers are larger than at the start.
func (s *Source) Grown() bool { return s.size > s.base }

// Request returns the size to ask for in a ChRcvBuf, in bytes, if one is due.
func (s *Source) Request() (size int, due bool) { return int(s.want), s.want != 0 && s.asked == 0 }

// Requested notes that the ChRcvBuf is about to be sent as message mseq. A request to shrink
// binds this end immediately (§10.6).
func (s *Source) Requested(mseq uint32) {
	s.askedIn = mseq
	s.asked, s.want, s.was = s.want, 0, s.size
	s.size = min(s.size, s.asked)
}

// Acked handles a ChRcvBufAck. It returns an error if the message breaks §10.6.
func (s *Source) Acked(size uint32) error {
	if s.asked == 0 {
		return fmt.Errorf("bcopy: §10.6: ChRcvBufAck without ChRcvBuf")
	}
	asked, n := s.asked, int32(min(size, 1<<30))
	s.asked = 0
	grow := asked > s.was
	switch {
	case grow && n < s.was:
		return fmt.Errorf("bcopy: §10.6: peer's buffers shrank to %[3]d bytes, asked to grow from %[1]d to %[2]d", s.was, asked, n)
	case !grow && n < asked:
		return fmt.Errorf("bcopy: §10.6: peer's buffers shrank to %[2]d bytes, asked to shrink to %[1]d", asked, n)
	case !grow && n > s.was:
		return fmt.Errorf("bcopy: §10.6: peer's buffers grew to %[3]d bytes, asked to shrink from %[1]d to %[2]d", s.was, asked, n)
	case grow && n == s.was:
		s.noMore = true
	case !grow && n > asked:
		s.noLess = true
	}
	s.size = min(n, MaxBuffer)
	return nil
}

// Crossed handles a ChRcvBuf of the peer that acknowledges our messages up to ack, and reports
// whether it must be answered. If it has crossed one of ours, the accepting end drops the
// peer's request. The connecting end answers it and may ask again, because its own request has
// no effect and gets no answer (§10.6.1). If the peer had received our request, the two have not
// crossed, and the peer will answer ours later.
func (s *Source) Crossed(ack uint32) (answer bool) {
	if s.asked == 0 || int32(ack-s.askedIn) >= 0 {
		return true
	}
	if !s.connector {
		return false
	}
	s.want, s.asked, s.size = s.asked, 0, s.was
	return true
}
