// Package session has the decisions of the protocol of one connection: which message goes
// next, what a message that came means, and what a Read or a Write may do.
//
// A Session has no goroutine, no lock, no clock and no I/O. It fills a [Batch] with messages
// for the driver to post, and is told how many of them went (Sent). The driver gives it each
// message that came (Receive), and does what the answer says. The drivers are package sdp,
// whose Conn holds its lock for each call, and the simulator in test/sim.
//
// What the parts decide is theirs: credits, bcopy and zcopy. The Session decides what
// concerns more than one of them.
package session

import (
	"github.com/gosdp/gosdp/bcopy"
	"github.com/gosdp/gosdp/credits"
	"github.com/gosdp/gosdp/wire"
	"github.com/gosdp/gosdp/zcopy"
)

// Session is the protocol state of one end of a connection. Unsafe for concurrent use.
//
// A driver uses the parts for what concerns its own calls: how much is unread, what a Write
// has advertised. What messages do to them is the Session's alone.
type Session struct {
	Account credits.Account
	Source  bcopy.Source
	Sink    bcopy.Sink
	ZSource *zcopy.Source // these two are nil while neither end has used zero copy
	ZSink   *zcopy.Sink

	// Target is how many private buffers there are to be. Half of them free is worth a
	// message of its own to tell the peer.
	Target int

	adverts     uint16 // how many of the peer's advertisements may be outstanding
	grows       bool
	invalidates bool

	fin     fin
	update  bool // an empty Data message is due, whatever the credit
	abort   bool // an AbortConn is due
	reading bool // the Read in progress has announced that it waits
}

// fin is how far our DisConn is.
type fin uint8

const (
	finOpen  fin = iota // the program may still write
	finDue              // all data before it has been sent
	finGoing            // it is being posted
	finSent
)

// Config is what a Session has to know.
type Config struct {
	Dialled     bool // by this end
	Local, Peer wire.Hello
	Grows       bool // messages may have become longer in the device: rdma.Appender
	Invalidates bool // messages may invalidate the peer's regions
}

// New returns the Session of a connection without zero copy; see [Session.StartDirect].
func New(c Config) Session {
	return Session{
		Account:     credits.New(c.Peer.Bufs, c.Local.Bufs),
		Source:      bcopy.NewSource(int(min(c.Peer.LocalRcvSz, bcopy.MaxBuffer)), c.Dialled),
		Sink:        bcopy.NewSink(int(c.Local.LocalRcvSz)),
		Target:      int(c.Local.Bufs),
		adverts:     c.Local.MaxAdverts,
		grows:       c.Grows,
		invalidates: c.Invalidates,
	}
}

// DirectConfig is what zero copy has to know.
type DirectConfig struct {
	Threshold   int  // bytes; a longer Write is advertised. zcopy.Never: none is
	PeerAdverts int  // how many advertisements the peer takes
	Refuse      bool // what the peer advertises is to come as Data
	Worth       int  // bytes that are worth an RDMA Read of their own
	MaxOffer    int  // bytes in one SrcAvail; 0: as many as the protocol has room for
}

// StartDirect has the connection use zero copy. It is called before the first message.
func (s *Session) StartDirect(c DirectConfig) {
	d := new(struct {
		source zcopy.Source
		sink   zcopy.Sink
	})
	d.source = zcopy.NewSource(zcopy.SourceConfig{
		Threshold:  c.Threshold,
		PeerAdvert: c.PeerAdverts,
		OurAdverts: int(s.adverts),
		MaxOffer:   c.MaxOffer,
	})
	d.sink = zcopy.NewSink(zcopy.SinkConfig{
		Refuse:     c.Refuse,
		OurAdverts: int(s.adverts),
		PeerAdvert: c.PeerAdverts,
		Worth:      c.Worth,
	})
	s.ZSource, s.ZSink = &d.source, &d.sink
}

// refuseDirect makes the state of zero copy at an end that takes no part, when the peer's
// first message about it has come, which is then judged like any other. Such an end
// advertises nothing, so the peer's limit does not matter, nor how many messages with
// payload have gone either way before.
func (s *Session) refuseDirect() {
	s.StartDirect(DirectConfig{Threshold: zcopy.Never, PeerAdverts: 1, Refuse: true, Worth: 1})
	if s.Sink.Ended() {
		s.ZSink.End()
	}
}

// Update makes an empty Data message due.
func (s *Session) Update() { s.update = true }

// EndWrites makes the DisConn due, unless it was due before, and reports that it did. All
// data must have been sent.
func (s *Session) EndWrites() bool {
	if s.fin != finOpen {
		return false
	}
	s.fin = finDue
	return true
}

// WritesEnded reports that EndWrites was called.
func (s *Session) WritesEnded() bool { return s.fin != finOpen }

// SaidEnd reports that the DisConn has been sent.
func (s *Session) SaidEnd() bool { return s.fin == finSent }

// Abort makes an AbortConn due, if there has been a DisConn for it to follow (§8.2.2), and
// reports that it did.
func (s *Session) Abort() bool {
	s.abort = s.abort || s.fin == finSent
	return s.abort
}

// DropAbort has no AbortConn be due any more, and reports that one was.
func (s *Session) DropAbort() bool {
	was := s.abort
	s.abort = false
	return was
}

// RefuseAdverts has the peer send what it advertises as Data, which nobody will read. It
// reports that a message is due for that.
func (s *Session) RefuseAdverts() bool {
	s.ZSink.Refuse()
	return s.ZSink.Pending()
}

// ReadStep is what a Read does next.
type ReadStep uint8

const (
	ReadWait      ReadStep = iota // for the peer
	ReadCopy                      // copy what is unread
	ReadFetch                     // fetch what the peer advertises
	ReadDecline                   // send what is due, which has the peer send it as Data
	ReadAdvertise                 // advertise the Read's memory
)

// PlanRead says what a Read of n bytes does next. last: all that will come has come.
func (s *Session) PlanRead(n int, last bool) ReadStep {
	switch {
	case s.Sink.Head() != nil:
		return ReadCopy
	case !last && s.ZSink.Suits(n):
		return ReadFetch
	case s.ZSink.Decline(): // the Read is too small for what is advertised
		return ReadDecline
	}
	if !s.reading {
		s.reading = true
		s.ZSink.Reading(n, s.Sink.Size())
	}
	if s.ZSink.MayOffer(n, s.Sink.Size()) {
		return ReadAdvertise
	}
	return ReadWait
}

// ReadDone tells that the Read has returned.
func (s *Session) ReadDone() {
	s.reading = false
	s.ZSink.Read()
}
