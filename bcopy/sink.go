package bcopy

// Owner owns private buffers. Release returns one whose payload was read.
type Owner interface{ Release() }

// Sink is the receiving half: unread payload, in the private buffers in which it arrived. It
// is not safe for concurrent use, with one exception: the slice that Head returned may be read
// without the owner's lock until Consume.
type Sink struct {
	queue []item // a ring
	first int32
	count int32
	bytes int   // unread
	own   int   // bytes of memory of the Sink's own in the queue
	lent  int32 // private buffers in the queue
	small int32 // of those, how many have arrived since the last Gather and are worth gathering
	ended bool  // the peer's DisConn was received

	size  int32 // of our private buffers, in bytes
	next  int32 // the size to acknowledge in a ChRcvBufAck; 0: none
	older int32 // buffers of the old size that are still posted
}

type item struct {
	data  []byte
	owner Owner // nil: the data is in memory of the Sink's own,
	own   int   // of this many bytes
}

// NewSink returns the receiving half of a connection with private buffers of size bytes.
func NewSink(size int) Sink { return Sink{size: int32(size)} }

// Add appends payload that has arrived in a private buffer.
func (s *Sink) Add(payload []byte, owner Owner) {
	s.push(item{data: payload, owner: owner})
	s.bytes += len(payload)
	s.lent++
	if len(payload) <= s.gatherMax() {
		s.small++
	}
}

func (s *Sink) push(it item) {
	if int(s.count) == len(s.queue) {
		bigger := make([]item, max(1, 2*len(s.queue)))
		for i := range s.count {
			bigger[i] = *s.at(i)
		}
		s.queue, s.first = bigger, 0
	}
	*s.at(s.count) = it
	s.count++
}

func (s *Sink) at(i int32) *item { return &s.queue[int(s.first+i)&(len(s.queue)-1)] }

// Head returns the unread bytes of the oldest payload, nil if nothing is unread.
func (s *Sink) Head() []byte {
	if s.count == 0 {
		return nil
	}
	return s.at(0).data
}

// Consume notes that n bytes of Head were read. If that was all of it and it is in a private
// buffer, Consume returns the owner, to be released.
func (s *Sink) Consume(n int) Owner {
	it := s.at(0)
	s.bytes -= n
	if it.data = it.data[n:]; len(it.data) > 0 {
		return nil
	}
	owner := it.owner
	s.own -= it.own
	*it = item{}
	s.first = (s.first + 1) & int32(len(s.queue)-1)
	if s.count--; s.count == 0 && len(s.queue) > 64 {
		s.queue, s.first = nil, 0 // a long queue is not kept after a burst
	}
	if owner != nil {
		s.lent--
	}
	return owner
}

// Return puts payload that was the Head and was consumed back in front of what is unread.
// owner is what Consume returned.
func (s *Sink) Return(payload []byte, owner Owner) {
	s.push(item{})
	s.first = (s.first - 1) & int32(len(s.queue)-1)
	it := item{data: payload, owner: owner}
	if owner != nil {
		s.lent++
	} else {
		it.own = cap(payload)
	}
	*s.at(0) = it
	s.own += it.own
	s.bytes += len(payload)
}

// Bytes returns how many bytes are unread.
func (s *Sink) Bytes() int { return s.bytes }

// Lent returns how many private buffers hold unread payload.
func (s *Sink) Lent() int { return int(s.lent) }

// Own returns how many bytes of memory of the Sink's own hold unread payload.
func (s *Sink) Own() int { return s.own }

// End notes that a DisConn was received: no payload follows.
func (s *Sink) End() { s.ended = true }

// Ended reports whether a DisConn was received.
func (s *Sink) Ended() bool { return s.ended }

// If a program does not read while its peer writes little at a time, each private buffer would
// hold a few bytes. Such payloads are copied together, into blocks of gatherBlock bytes, or of
// a private buffer's size if that is less, so that gathering never needs additional memory.
const (
	gatherBlock = 32 << 10
	gatherLeast = 4 // small payloads; fewer are not worth gathering
)

// gatherMax returns the maximum length of a small payload.
func (s *Sink) gatherMax() int { return s.gatherBlock() / 4 }

func (s *Sink) gatherBlock() int { return min(gatherBlock, int(s.size)) }

// Crowded reports whether more than limit private buffers hold unread payload, and Gather
// would free some.
func (s *Sink) Crowded(limit int) bool { return int(s.lent) > limit && s.small >= gatherLeast }

// Gather copies small payloads together and passes their buffers to release. The oldest one
// stays, because the program may be reading it.
func (s *Sink) Gather(release func(Owner)) {
	s.small = 0
	kept, largest := int32(1), s.gatherMax()
	var block []byte // the data of the last kept item, while it may grow
	for i := int32(1); i < s.count; i++ {
		it := *s.at(i)
		if it.owner == nil || len(it.data) > largest {
			block = nil
			if it.owner == nil {
				block = it.data // from an earlier Gather, possibly with room after it
			}
			*s.at(kept) = it
			kept++
			continue
		}
		if cap(block)-len(block) < len(it.data) {
			block = make([]byte, 0, s.gatherBlock())
			s.own += cap(block)
			*s.at(kept) = item{own: cap(block)}
			kept++
		}
		block = append(block, it.data...)
		s.at(kept - 1).data = block
		s.lent--
		release(it.owner)
	}
	for i := kept; i < s.count; i++ {
		*s.at(i) = item{}
	}
	s.count = min(s.count, kept)
}

// Resizing reports whether a ChRcvBuf was received and not answered yet. There may be no other
// meanwhile (§10.6).
func (s *Sink) Resizing() bool { return s.next != 0 }

// Resize handles a ChRcvBuf that must be answered, and returns the new size of the private
// buffers. The request is granted up to MaxBuffer, and never against its direction (§10.6).
func (s *Sink) Resize(desired uint32) (size int) {
	s.size = int32(min(desired, uint32(max(s.size, MaxBuffer))))
	s.next = s.size
	return int(s.size)
}

// Older sets how many posted buffers still have the size from before Resize. The
// acknowledgement of larger ones waits until these are used up.
func (s *Sink) Older(n int) { s.older = int32(n) }

// Used notes that a message has used up a posted buffer.
func (s *Sink) Used() {
	if s.older > 0 {
		s.older--
	}
}

// Ack returns the size for a ChRcvBufAck, in bytes, if one is due.
func (s *Sink) Ack() (size int, due bool) { return int(s.next), s.next != 0 && s.older == 0 }

// Acked notes that the ChRcvBufAck was sent.
func (s *Sink) Acked() { s.next = 0 }

// Size returns the size of this end's private buffers, in bytes.
func (s *Sink) Size() int { return int(s.size) }
