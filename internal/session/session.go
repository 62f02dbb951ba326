// Package session makes the protocol decisions of one connection: which message is sent
// next, what a received message means, and what a Read or a Write does next.
//
// A Session has no goroutine, lock, clock or I/O. Its driver posts the messages that the
// Session puts into a [Batch] and reports how many were sent (Sent). It passes every
// received message to Receive and acts on the result. A Write repeats PlanWrite, and a Read
// repeats PlanRead, until the plan is to return. The drivers are package engine, which holds
// a connection's lock during each call, and the simulator in test/sim.
//
// Packages credits, bcopy and zcopy each decide about one mechanism. The Session combines
// them.
package session

import (
	"errors"
	"io"
	"syscall"

	"github.com/gosdp/gosdp/bcopy"
	"github.com/gosdp/gosdp/credits"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
	"github.com/gosdp/gosdp/zcopy"
)

// Session is the protocol state of one end of a connection. It is not safe for concurrent
// use.
type Session struct {
	account credits.Account
	source  bcopy.Source
	sink    bcopy.Sink
	zsource *zcopy.Source // these two are nil until either end uses zero copy
	zsink   *zcopy.Sink

	target int32 // see SetTarget
	gather int32 // see GatherMore

	adverts     uint16 // how many advertisements the peer may have outstanding
	invalidates bool

	fin        fin
	update     bool // an empty Data message is due, whatever the credit
	abort      bool // an AbortConn is due
	planned    bool // zsource plans the Write in progress
	reading    bool // the Read in progress has announced that it waits
	oneMessage bool // the Read in progress may return the payload of one message
}

// fin is the state of this end's DisConn.
type fin uint8

const (
	finOpen  fin = iota // the program may still write
	finDue              // all data before it has been sent
	finGoing            // it is being posted
	finSent
)

// Config is the configuration of a Session.
type Config struct {
	Dialled     bool // this end dialled
	Local, Peer wire.Hello
	Invalidates bool // messages may invalidate the peer's regions
}

// New returns a Session that does not use zero copy; see [Session.StartDirect].
func New(c Config) Session {
	return Session{
		account:     credits.New(c.Peer.Bufs, c.Local.Bufs),
		source:      bcopy.NewSource(int(min(c.Peer.LocalRcvSz, bcopy.MaxBuffer)), c.Dialled),
		sink:        bcopy.NewSink(int(c.Local.LocalRcvSz)),
		target:      int32(c.Local.Bufs),
		gather:      gatherMost,
		adverts:     c.Local.MaxAdverts,
		invalidates: c.Invalidates,
	}
}

// DirectConfig is the configuration of zero copy.
type DirectConfig struct {
	Threshold   int  // bytes; longer Writes are advertised. zcopy.Never: none are
	PeerAdverts int  // how many advertisements the peer accepts
	Refuse      bool // the peer must send everything that it advertises as Data
	Worth       int  // bytes that are worth an RDMA Read of their own
	MaxOffer    int  // maximum bytes in one SrcAvail; 0: the protocol's limit
}

// StartDirect starts zero copy. It must be called before the first message, because Pipelined
// mode counts messages.
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
	s.zsource, s.zsink = &d.source, &d.sink
	if s.sink.Ended() {
		s.zsink.End()
	}
}

// peerStarts creates the zero-copy state when the peer uses zero copy first. An end that does
// not take part needs it too, so that the peer's messages about zero copy are checked like any
// other. Such an end does not enter Pipelined mode, so the number of messages sent so far does
// not matter.
func (s *Session) peerStarts() {
	s.StartDirect(DirectConfig{Threshold: zcopy.Never, PeerAdverts: 1, Refuse: true, Worth: 1})
}

// Begin accounts for the client's first message, whose header is h. The handshake of the end
// that accepted the connection has received it.
func (s *Session) Begin(h *wire.Header) error {
	if err := s.account.Received(h.MSeq, h.MSeqAck, h.Bufs); err != nil {
		return err
	}
	s.account.Post(1)
	return nil
}

// Update makes an empty Data message due.
func (s *Session) Update() { s.update = true }

// Idle notes that the connection has been idle for a while. The peer may then be asked to
// shrink its private buffers.
func (s *Session) Idle() { s.source.Idle() }

// Grown reports whether the peer's private buffers are larger than at the start.
func (s *Session) Grown() bool { return s.source.Grown() }

// EndWrites makes the DisConn due, and reports whether it was not due before. All data must
// have been sent.
func (s *Session) EndWrites() bool {
	if s.fin != finOpen {
		return false
	}
	s.fin = finDue
	return true
}

// WritesEnded reports whether EndWrites was called.
func (s *Session) WritesEnded() bool { return s.fin != finOpen }

// EndSent reports whether the DisConn has been sent.
func (s *Session) EndSent() bool { return s.fin == finSent }

// PeerEnded reports whether the peer's DisConn has been received.
func (s *Session) PeerEnded() bool { return s.sink.Ended() }

// Abort makes an AbortConn due if this end's DisConn was sent, which it must follow
// (§8.2.2), and reports whether it is due.
func (s *Session) Abort() bool {
	s.abort = s.abort || s.fin == finSent
	return s.abort
}

// DropAbort cancels an AbortConn that is due, and reports whether one was.
func (s *Session) DropAbort() bool {
	was := s.abort
	s.abort = false
	return was
}

// ChannelEnded handles the end of the channel, after which the device delivers nothing more
// because of err. It returns the errors with which Reads and Writes fail from now on, and whether
// a violation ended the channel. sendErr is the error with which Writes fail already, or nil.
// outlives means that what the peer's Writes had accepted arrives even if its process ends.
func (s *Session) ChannelEnded(err, sendErr error, outlives bool) (recv, send error, violation bool) {
	var violated *rdma.ProtocolError
	var terminated *rdma.TerminateError
	// Cut in a message or in a transfer that the peer has begun: its Write has not returned.
	cut := errors.Is(err, io.ErrUnexpectedEOF) || s.zsink.Announced()
	switch {
	case errors.As(err, &violated), errors.As(err, &terminated):
		return err, err, true
	case s.sink.Ended():
		// A channel that ends after a DisConn ended well, however it ended (§8.2.1). No
		// more credit arrives, and nothing can be sent.
		recv, send = io.EOF, syscall.EPIPE
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		recv, send = err, err
	case outlives && !cut && errors.Is(sendErr, syscall.ECONNRESET):
		recv = syscall.ECONNRESET // a kernel reports a reset once, and then an end
	case outlives && !cut:
		recv, send = io.EOF, syscall.EPIPE // the peer's process has ended
	default:
		// Bytes are missing, or may be, so this is a reset (§8.2.2).
		recv, send = syscall.ECONNRESET, syscall.ECONNRESET
	}
	if sendErr != nil {
		send = sendErr
	}
	return recv, send, false
}

// Parts are the parts of a Session, for tests that inspect or change their state.
type Parts struct {
	Account *credits.Account
	Source  *bcopy.Source
	Sink    *bcopy.Sink
	ZSource *zcopy.Source
	ZSink   *zcopy.Sink
}

// Parts returns the parts of the Session, for tests.
func (s *Session) Parts() Parts {
	return Parts{&s.account, &s.source, &s.sink, s.zsource, s.zsink}
}
