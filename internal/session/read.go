package session

import (
	"github.com/gosdp/gosdp/bcopy"
	"github.com/gosdp/gosdp/zcopy"
)

// ReadStep is what a Read does next.
type ReadStep uint8

const (
	ReadWait      ReadStep = iota // wait for the peer
	ReadCopy                      // copy unread payload
	ReadMessage                   // copy from the first unread message only, and return
	ReadFetch                     // fetch what the peer advertises: see Fetch
	ReadControl                   // send what is due, which asks the peer for Data
	ReadAdvertise                 // register the Read's memory, and call Advertise
	ReadDone                      // return
)

// PlanRead returns the next step of a Read with room for n more bytes. n is 0 if the caller has
// no memory of its own and takes payload where it is. got says that the Read has bytes already,
// and last that nothing can be requested from the peer any more.
func (s *Session) PlanRead(n int, got, last bool) ReadStep {
	switch {
	case s.sink.Head() != nil && s.oneMessage:
		return ReadMessage // and no more (§9.5.1)
	case s.sink.Head() != nil && (n > 0 || !got):
		return ReadCopy
	case !last && s.zsink.Suits(n): // after a copy too: what rode along is a small part
		return ReadFetch
	case got:
		return ReadDone
	case s.zsink.Decline(): // the Read is too small for the advertisement
		return ReadControl
	case n == 0:
		return ReadWait
	}
	if !s.reading {
		s.reading = true
		s.zsink.Reading(n, s.sink.Size())
	}
	if s.zsink.MayOffer(n, s.sink.Size()) {
		return ReadAdvertise
	}
	return ReadWait
}

// ReadDone notes that the Read has returned.
func (s *Session) ReadDone() {
	s.reading, s.oneMessage = false, false
	s.zsink.Read()
}

// Fetch returns the next RDMA Read for a Read with room for n bytes: its size, and the
// address at the peer. It is not ok if there is nothing to fetch, or not yet: payload that
// has arrived comes first in the stream.
func (s *Session) Fetch(n int) (size int, stag uint32, va uint64, ok bool) {
	if s.sink.Head() != nil {
		return 0, 0, 0, false
	}
	return s.zsink.Fetch(n)
}

// Unfetch takes the last Fetch back, because the RDMA Read could not be posted. If no other
// is under way, the peer is asked for Data, because no completion would say when to try
// again. It reports whether a message is due: for that, or because the peer has withdrawn
// its advertisement in the meantime.
func (s *Session) Unfetch(size int) bool {
	s.zsink.Unfetch(size)
	s.zsink.Decline()
	return s.zsink.Pending()
}

// Fetched notes that the oldest RDMA Read, of size bytes, has completed.
func (s *Session) Fetched(size int) { s.zsink.Fetched(size) }

// Advertise makes a SinkAvail due for n bytes of the Read, which are exposed as stag at va. It
// returns false if the Read may not advertise any more. Otherwise AdvertEnded must be called
// until it reports the end.
func (s *Session) Advertise(stag uint32, va uint64, n int) bool {
	if s.sink.Head() != nil || !s.zsink.MayOffer(n, s.sink.Size()) {
		return false
	}
	s.zsink.Offer(stag, va, n)
	return true
}

// AdvertEnded reports whether the Read's advertisement has ended, and how many bytes the
// peer has filled. If that is 0, the Read continues with PlanRead.
func (s *Session) AdvertEnded() (filled int, ended bool) {
	filled, ended = s.zsink.Outcome()
	s.oneMessage = ended && filled == 0 && s.sink.Head() != nil
	return filled, ended
}

// WithdrawAdvert withdraws the Read's advertisement, and reports whether a message is due
// for that.
func (s *Session) WithdrawAdvert() bool { return s.zsink.Withdraw() }

// AbandonAdvert ends the Read's advertisement, because the connection has ended.
func (s *Session) AbandonAdvert() { s.zsink.Abandon() }

// RefuseAdverts makes the peer send everything that it advertises as Data from now on, and
// reports whether a message is due for that.
func (s *Session) RefuseAdverts() bool {
	s.zsink.Refuse()
	return s.zsink.Pending()
}

// Announced reports whether the peer has advertised bytes that have neither been fetched nor
// arrived as Data.
func (s *Session) Announced() bool { return s.zsink.Announced() }

// Head returns the unread bytes of the oldest message with payload, nil if nothing is
// unread. They may be read without the driver's lock until Consume.
func (s *Session) Head() []byte { return s.sink.Head() }

// Consume notes that the first n bytes of Head were read. If they were the last ones in a private
// buffer, it returns the buffer's owner, to be released, and nil otherwise.
func (s *Session) Consume(n int) bcopy.Owner {
	owner := s.sink.Consume(n)
	if s.gather != gatherMost && s.sink.Bytes() == 0 {
		s.gather = gatherMost
	}
	return owner
}

// Return puts payload that was consumed back in front of what is unread.
func (s *Session) Return(payload []byte, owner bcopy.Owner) { s.sink.Return(payload, owner) }

// Unread returns how many bytes have arrived as payload and were not read.
func (s *Session) Unread() int { return s.sink.Bytes() }

// Held returns the memory that unread payload takes: the number of private buffers, and the
// number of bytes that Gather has copied.
func (s *Session) Held() (buffers, copied int) { return s.sink.Lent(), s.sink.Own() }

// gatherMost is how many bytes a program may leave unread before small messages are no
// longer gathered, unless GatherMore is called. Beyond that the peer waits.
const gatherMost = 1 << 20

// GatherMore lets the program leave n more bytes unread, but at most most in all, before small
// messages are no longer gathered, until it has read everything. It does nothing and returns false
// if fewer bytes are unread, or if most is reached.
func (s *Session) GatherMore(n, most int) bool {
	if s.sink.Bytes() < int(s.gather) || int(s.gather) >= most {
		return false
	}
	s.gather = int32(min(int(s.gather)+n, most))
	return true
}

// Ahead returns how many bytes GatherMore has added.
func (s *Session) Ahead() int { return int(s.gather) - gatherMost }

// Gather copies small messages together and passes their private buffers to release, if
// unread payload is in more than half of the buffers because the program does not read. It
// reports whether it did.
func (s *Session) Gather(release func(bcopy.Owner)) bool {
	if !s.sink.Crowded(int(s.target)/2) || s.sink.Bytes() >= int(s.gather) {
		return false
	}
	s.sink.Gather(release)
	return true
}

// BufferSize returns the size of this end's private buffers, in bytes.
func (s *Session) BufferSize() int { return s.sink.Size() }

// Resize sets the size of this end's private buffers to what the driver has granted of the
// peer's request, and returns the new size. The driver must then call Older.
func (s *Session) Resize(granted uint32) (size int) { return s.sink.Resize(granted) }

// Older notes how many posted private buffers still have the size from before Resize.
func (s *Session) Older(n int) { s.sink.Older(n) }

// SetTarget sets how many private buffers there shall be. When half of them are free, a message
// that grants them to the peer is due.
func (s *Session) SetTarget(n int) { s.target = int32(n) }

// Target returns how many private buffers there shall be.
func (s *Session) Target() int { return int(s.target) }

// Post notes that n more private buffers were posted, which the next message grants to the peer.
func (s *Session) Post(n int) { s.account.Post(n) }

// Credit returns how many messages this end may send now.
func (s *Session) Credit() int { return s.account.Credit() }

// PeerCredit returns how many more messages the peer may send.
func (s *Session) PeerCredit() int { return s.account.PeerCredit() }

// Posted returns how many private buffers are posted.
func (s *Session) Posted() int { return s.account.PeerCredit() + s.account.Gain() }

// DirectCounts returns what was sent and received without a copy.
func (s *Session) DirectCounts() (sent, received zcopy.Counts) {
	if s.zsource == nil {
		return sent, received
	}
	return s.zsource.Counts(), s.zsink.Counts()
}
