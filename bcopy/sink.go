package bcopy

// Owner gets a private buffer back when its payload has been read.
type Owner interface{ Release() }

// Sink is the receiving half: payload that has come and was not read, in the
// private buffers that it came in. Unsafe for concurrent use, with one exception:
// the slice that Head returned may be read without the owner's lock until
// Consume.
type Sink struct {
	queue []item // a ring
	first int32
	count int32
	bytes int   // unread
	own   int   // bytes of memory of the Sink's own in the queue
	lent  int32 // private buffers in the queue
	small int32 // of those, what has come since the last Gather and is worth gathering
	ended bool

	size  int32 // of our private buffers, in bytes
	next  int32 // the size that a ChRcvBuf has asked for and ours have now; 0: none to acknowledge
	older int32 // buffers of the old size that are still posted
}

type item struct {
	data  []byte
	owner Owner // nil: memory of the Sink's own,
	own   int   // of so many bytes
}

// NewSink returns the receiving half of a connection with private buffers of
// size bytes.
func NewSink(size int) Sink { return Sink{size: int32(size)} }

// Add appends payload that has come in a private buffer.
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

// Head returns what is unread of the oldest payload, nil if nothing is unread.
func (s *Sink) Head() []byte {
	if s.count == 0 {
		return nil
	}
	return s.at(0).data
}

// Consume tells that n bytes of Head were read. It returns the buffer's owner,
// to whom it goes back now, if that was all of it and the buffer was lent.
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
		s.queue, s.first = nil, 0 // a burst's queue is not kept
	}
	if owner != nil {
		s.lent--
	}
	return owner
}

// Return puts payload back that was the Head, and was consumed, in front of what is
// unread now. owner is its buffer's; nil if that was not lent.
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

// End tells that a DisConn has come: no payload follows.
func (s *Sink) End() { s.ended = true }

// Ended reports that a DisConn has come.
func (s *Sink) Ended() bool { return s.ended }

// A program that does not read while its peer writes little at a time would
// have all private buffers held by a few bytes each, where TCP would hold the
// bytes alone. Such payloads are copied into blocks of gatherBlock bytes, or of a
// private buffer's size if that is less: gathering never takes memory.
const (
	gatherBlock = 32 << 10
	gatherLeast = 4 // small payloads; for fewer it is not worth looking at all
)

// gatherMax returns how long a small payload is at most.
func (s *Sink) gatherMax() int { return s.gatherBlock() / 4 }

func (s *Sink) gatherBlock() int { return min(gatherBlock, int(s.size)) }

// Crowded reports that more than limit private buffers are lent, and that Gather
// would free some.
func (s *Sink) Crowded(limit int) bool { return int(s.lent) > limit && s.small >= gatherLeast }

// Gather copies small payloads together and hands their buffers to release. The
// oldest one stays: somebody may be reading it.
func (s *Sink) Gather(release func(Owner)) {
	s.small = 0
	kept, largest := int32(1), s.gatherMax()
	var block []byte // the last kept item's, while it may grow
	for i := int32(1); i < s.count; i++ {
		it := *s.at(i)
		if it.owner == nil || len(it.data) > largest {
			block = nil
			if it.owner == nil {
				block = it.data // an earlier one's, with room behind it
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

// Resizing reports that a ChRcvBuf has been taken in and not been answered: there
// may be no other (§10.6).
func (s *Sink) Resizing() bool { return s.next != 0 }

// Resize takes in a ChRcvBuf that is to be answered, and returns the size that
// the private buffers shall have now. The request is granted as far as
// MaxBuffer goes, and never against its direction (§10.6).
func (s *Sink) Resize(desired uint32) (size int) {
	s.size = int32(min(desired, uint32(max(s.size, MaxBuffer))))
	s.next = s.size
	return int(s.size)
}

// Older tells how many posted buffers still have the old size after Resize. The
// acknowledgement of larger ones waits until they are used up.
func (s *Sink) Older(n int) { s.older = int32(n) }

// Used tells that a message has used up a posted buffer.
func (s *Sink) Used() {
	if s.older > 0 {
		s.older--
	}
}

// Ack returns the size to tell in a ChRcvBufAck, in bytes, if one is due.
func (s *Sink) Ack() (size int, due bool) { return int(s.next), s.next != 0 && s.older == 0 }

// Acked tells that the ChRcvBufAck has been sent.
func (s *Sink) Acked() { s.next = 0 }

// Size returns the size of our private buffers, in bytes.
func (s *Sink) Size() int { return int(s.size) }
