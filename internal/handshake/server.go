package handshake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gosdp/gosdp/internal/interrupt"
	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/internal/spin"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

// Server holds what the handshakes of one listener share. It is safe for concurrent use.
type Server struct {
	cfg       Config
	host      host
	announcer *shmdir.Announcer // in cfg.Dir; nil: nothing is announced there
	listeners channelListeners
	requests  spin.Habit // polling for Requests that are about to arrive
	decisions spin.Habit // polling for decisions on channels
}

// NewServer returns a Server. The caller closes it after all its handshakes have ended.
func NewServer(cfg Config) *Server { return &Server{cfg: cfg, host: thisHost()} }

// Announce shows clients of other network namespaces that SDP is served at the listener's
// address, if there is a directory in which they can be met. It must be called before Accepted,
// and Unannounce after it.
func (s *Server) Announce(listener net.Addr) {
	if at := addrPort(listener); at.IsValid() && s.cfg.meets() {
		s.announceInDir(at)
	}
}

// Unannounce withdraws what Announce has announced. It may be called twice, and while
// handshakes are in progress.
func (s *Server) Unannounce() {
	s.listeners.takeClaims(false) // another process may listen at the address next
	if s.announcer != nil {
		s.announcer.Close()
	}
}

// Suspend ends, until Resume, what Announce has announced, and the claims on connections that were
// not accepted: another process may accept them. Connections over channels that are kept cannot be
// claimed until then either.
func (s *Server) Suspend() {
	s.listeners.takeClaims(false)
	if s.announcer != nil {
		s.announcer.Suspend()
	}
}

// Resume ends the effect of Suspend. It does nothing, and takes little time, if there is none. It must
// not be called after Unannounce.
func (s *Server) Resume() {
	s.listeners.takeClaims(true)
	if s.announcer == nil {
		return
	}
	if err := s.announcer.Resume(); err != nil {
		s.cfg.Logger.Debug("sdp: renewal of the announcement to other containers failed", "reason", err)
	}
}

// Close ends the devices' listeners.
func (s *Server) Close() { s.listeners.close() }

// Serve performs the handshake on one connection that the caller has accepted. It returns
// when the connection is set up, ctx is done, or the handshake has failed. With an error it
// has closed the connection.
func Serve(ctx context.Context, conn net.Conn, cfg Config) (*Connection, error) {
	s := NewServer(cfg)
	defer s.Close()
	h := &Incoming{Server: s, conn: conn, expected: possible}
	h.Start(ctx)
	return h.Run()
}

// Accepted returns the handshake on a connection that a listener has accepted. The caller
// then calls Plain, Prompt, and Start and Run, in that order, until one of them has a
// result, and after that ReleaseClaims.
func (s *Server) Accepted(conn net.Conn) *Incoming {
	h := &Incoming{Server: s, conn: conn, expected: possible}
	h.peek()
	h.held = h.claimed()
	switch {
	case h.held != nil:
		h.expected = certain
	case h.spoke == undecided:
		h.expected = s.cfg.expects(conn)
	}
	return h
}

// Incoming is the server's half of one handshake. One goroutine at a time uses it, except
// for Progress and GiveWay, which are safe for concurrent use.
type Incoming struct {
	*Server
	conn     net.Conn
	all      context.Context // done when the handshake must end; nil before Start
	ctx      context.Context // of all, done when the time of the handshake is over
	expected expectation
	held     rdma.Claim // that may be for it; nil: there is none
	early    []byte     // its first earlyLen bytes have arrived and are not consumed
	earlyLen int
	spoke    verdict // what they mean
	channel
	request  *iwarp.Request // that was accepted
	sameHost bool           // the client says that it is on this host, and can prove it
	opened   *Connection    // over a channel that the client offered and has yet to take; nil: none

	mu       sync.Mutex
	progress Progress
	cancel   context.CancelFunc // of all and ctx
	giveWay  func()             // ends the current stage, or the whole handshake
}

// Progress is how far a handshake has advanced. If there are too many handshakes, the listener
// uses it to decide which of them gives way.
type Progress struct {
	Started bool      // Start was called
	Heard   bool      // the client has sent a Request
	Since   time.Time // when it arrived; until then, when the handshake started
	Leaving bool      // GiveWay was called, and the handshake is about to end
}

// Progress returns how far the handshake has advanced.
func (h *Incoming) Progress() Progress {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.progress
}

// GiveWay ends a handshake that was started, because others need its place.
func (h *Incoming) GiveWay() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.progress.Leaving = true
	h.giveWay()
}

// peek looks at the bytes that the client has sent so far.
func (h *Incoming) peek() {
	if h.early == nil {
		h.early = make([]byte, iwarp.MaxRequest)
	}
	h.earlyLen, h.spoke = first(h.conn, h.early)
}

// Plain returns the connection as plain TCP if the client speaks plain TCP, or if no Request is
// expected. It returns nil if a Request may arrive. An unexpected Request comes from a client
// that gave up before its connection was accepted. The program must not get it as data.
func (h *Incoming) Plain() *Connection {
	if h.expected == nothing {
		h.peek() // it may have arrived since
	} else if h.spoke != isPlain {
		return nil
	}
	if h.spoke == isMPA || h.cfg.SDPOnly {
		return nil
	}
	h.early = nil
	return &Connection{Conn: h.conn}
}

// Prompt sets up a connection without waiting, if it is certainly plain TCP or uses a channel
// that the client has offered. It polls briefly for a Request that is certain to arrive, and for
// the client's decision on a new channel. It returns nil for all other connections, of which it
// has consumed nothing, and for those whose decision has not arrived. If it returns an error, it
// has closed the connection.
func (h *Incoming) Prompt() (*Connection, error) {
	up, err := h.prompt()
	if up != nil || err != nil {
		h.takeBack(up)
	}
	return up, err
}

func (h *Incoming) prompt() (*Connection, error) {
	if !isSocket(h.conn) {
		return nil, nil // it might block although the kernel does not
	}
	defer func() { h.early = nil }()
	if h.spoke == undecided && (h.expected == certain || h.cfg.SDPOnly && OnThisHost(h.conn)) {
		h.requests.For(func() (over, worth bool) {
			h.peek()
			return h.spoke != undecided, h.spoke == isMPA
		})
	}
	if h.spoke == isPlain && !h.cfg.SDPOnly {
		return &Connection{Conn: h.conn}, nil
	}
	length := iwarp.RequestLen(h.early[:h.earlyLen])
	if length == 0 || h.earlyLen < length {
		return nil, nil
	}
	request, err := iwarp.ParseRequest(h.conn, h.early[:length])
	if err != nil {
		return nil, nil // Run reports it
	}
	offers, peer, err := h.parsePrivate(request.Private)
	if err != nil || offers.Channel == wire.NoChannel || !h.openOffered(&offers, &peer) {
		h.stale = false // Run tries it again, and replies
		return nil, nil
	}
	var up *Connection
	if _, err = io.ReadFull(h.conn, h.early[:length]); err == nil {
		h.ReleaseClaims(true)
		up, err = h.replyTaken(request, peer)
	}
	switch {
	case err != nil:
	case h.pending == nil:
		return up, nil
	default:
		h.opened = up
		h.decisions.For(func() (over, worth bool) {
			over = h.pending.Decided()
			return over, over
		})
		if !h.pending.Decided() {
			return nil, nil
		}
		up, err = h.decided(context.Background())
	}
	if err != nil {
		h.withdrawChannel()
		h.conn.Close()
	}
	return up, err
}

// securing is a connection with a handshake of its own, such as that of TLS. Before it is done
// there are no bytes to examine, and an interruption would break it.
type securing interface {
	HandshakeContext(context.Context) error
}

// Start starts the time that the handshake may take. The handshake also ends when ctx is done.
func (h *Incoming) Start(ctx context.Context) {
	all, cancel := context.WithCancel(ctx)
	ctx, stop := context.WithTimeout(all, h.cfg.HandshakeTimeout)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all, h.ctx, h.giveWay = all, ctx, func() {}
	h.cancel = func() { stop(); cancel() }
	h.progress.Started, h.progress.Since = true, time.Now()
	if _, ok := h.conn.(securing); ok {
		h.giveWay = h.cancel
	}
}

// Run performs the handshake. If it returns an error, it has closed the connection.
func (h *Incoming) Run() (*Connection, error) {
	defer h.cancel()
	up, err := h.run()
	h.takeBack(up)
	return up, err
}

func (h *Incoming) run() (up *Connection, err error) {
	if h.opened != nil { // Prompt has replied
		h.reads(true)
		if up, err = h.waitDecided(); err != nil {
			h.withdrawChannel()
			h.conn.Close()
		}
		return up, err
	}
	if s, ok := h.conn.(securing); ok {
		if err := s.HandshakeContext(h.ctx); err != nil {
			h.conn.Close()
			return nil, err
		}
	}
	_, v := first(h.conn, make([]byte, iwarp.KeyLen))
	if v == undecided {
		v = h.look()
	}
	if v != isMPA {
		return h.notMPA(v)
	}
	h.reads(false)
	if up, err = h.agree(); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) { // the time was over, or others needed the place; see notMPA
			Abort(h.conn)
		} else {
			h.conn.Close()
		}
		return nil, err
	}
	if !up.MustDecide {
		return up, nil
	}
	if err := h.decide(up); err != nil {
		up.QP.Abort()
		return nil, err
	}
	return up, nil
}

// look waits until the first bytes show what the client speaks, or the time is over. It checks
// repeatedly whether a client on this host still intends to send a Request.
func (h *Incoming) look() verdict {
	look, stop := context.WithCancel(h.ctx)
	defer stop()
	h.mu.Lock()
	h.giveWay = stop
	if h.progress.Leaving {
		stop()
	}
	h.mu.Unlock()
	for wait := recheckFirst; ; wait = h.recheckAfter(wait) {
		ctx, cancel := look, context.CancelFunc(func() {})
		if h.expected == certain {
			ctx, cancel = context.WithTimeout(look, wait)
		}
		v, instead := speaks(ctx, h.conn)
		cancel()
		if instead != nil {
			h.conn = instead
		}
		switch {
		case v != undecided || look.Err() != nil:
			return v
		case h.noneComes():
			return isPlain
		}
	}
}

// noneComes reports whether no Request will come any more, and none is there. A client that
// gives up may have sent its Request since the last look; the program must not get it as data.
func (h *Incoming) noneComes() bool {
	if h.stillExpects() != nothing {
		return false
	}
	_, v := first(h.conn, make([]byte, iwarp.KeyLen))
	return v != isMPA
}

// notMPA ends the handshake with a client that has not sent a Request. One that is silent, and may
// still send a Request, is reset: the program must not get the Request as data, and a client that was
// only slow connects again, which it does not after an orderly end.
func (h *Incoming) notMPA(v verdict) (*Connection, error) {
	mayCome := v == undecided &&
		(h.cfg.SDPOnly || (h.expected == certain || h.Progress().Leaving) && !h.noneComes())
	switch {
	case mayCome:
		Abort(h.conn)
		return nil, fmt.Errorf("handshake: no MPA Request from %v: timed out", h.conn.RemoteAddr())
	case h.cfg.SDPOnly:
		h.conn.Close()
		return nil, fmt.Errorf("handshake: %v does not speak SDP", h.conn.RemoteAddr())
	}
	return &Connection{Conn: h.conn}, nil
}

// reads notes that the client speaks MPA, and whether its Request has been read. GiveWay ends
// the whole handshake from now on. If it was called because the client was silent, the
// handshake continues.
func (h *Incoming) reads(heard bool) {
	h.ReleaseClaims(true)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.progress.Heard, h.progress.Since, h.progress.Leaving = heard, time.Now(), false
	h.giveWay = h.cancel
}

// agree reads the client's Request and replies. If both ends continue with SDP on the TCP
// connection, it makes a queue pair of that, on which the client must decide.
func (h *Incoming) agree() (*Connection, error) {
	defer interrupt.Conn(h.ctx, h.conn)()
	request, err := iwarp.ReadRequest(h.conn)
	if err != nil {
		return nil, err
	}
	h.conn = original(h.conn)
	h.reads(true)
	offers, peer, err := h.parsePrivate(request.Private)
	if err != nil {
		if _, other := wire.OtherVersion(request.Private); other {
			return h.reject(request)
		}
		// Another program's Request, or a malformed one: there is nothing to agree on.
		request.Reject(nil)
		return nil, err
	}
	h.choose(&offers, &peer)
	var up *Connection
	switch {
	case h.resumed != nil:
		up, err = h.replyTaken(request, peer)
	case h.stale: // the client connects again, and offers another channel
		request.Reject(nil)
		err = errors.New("handshake: idle channel offered by client no longer exists")
	case h.pending != nil:
		if h.opened, err = h.replyTaken(request, peer); err == nil {
			up, err = h.waitDecided()
		}
	case h.invitation != nil || h.stay:
		up, err = h.accept(request, peer)
	default:
		return h.reject(request)
	}
	if err != nil {
		h.withdrawChannel()
	}
	return up, err
}

// parsePrivate returns what a Request offers, and its Hello. It notes whether the client is
// on this host.
func (h *Incoming) parsePrivate(private []byte) (offers wire.Offers, peer wire.Hello, err error) {
	offers, hello, err := wire.ParseOffers(private)
	if err == nil {
		h.sameHost = offers.HasHost && h.host.made(offers.Host)
		peer, err = wire.ParseHello(hello)
	}
	return offers, peer, err
}

// reject refuses SDP. The connection continues as plain TCP, which a choice without a device
// tells the client.
func (h *Incoming) reject(request *iwarp.Request) (*Connection, error) {
	if h.cfg.SDPOnly {
		request.Reject(nil)
		return nil, fmt.Errorf("handshake: no device in common with %v", h.conn.RemoteAddr())
	}
	if err := rejectToPlain(request); err != nil {
		return nil, err
	}
	return &Connection{Conn: h.conn}, nil
}

// accept replies with the choice. The TCP connection becomes iwarp's channel whatever the
// choice is, because the client's decision comes over it.
func (h *Incoming) accept(request *iwarp.Request, peer wire.Hello) (*Connection, error) {
	up, cfg, private, err := h.reply(peer)
	if err != nil {
		return nil, err
	}
	qp, err := request.Accept(cfg, private)
	if err != nil {
		return nil, err
	}
	qp.ProvideReceive(int(h.cfg.Hello.Bufs), int(h.cfg.Hello.LocalRcvSz))
	up.QP, up.Device, up.MustDecide = qp, wire.DeviceIWARP.String(), true
	h.request = request
	return up, nil
}

// replyTaken replies that this end of the channel that the client offered is open. The Hello
// and the HelloAck are the channel's. If the channel is an idle one, the client has decided
// by offering it.
func (h *Incoming) replyTaken(request *iwarp.Request, peer wire.Hello) (*Connection, error) {
	up, cfg, private, err := h.reply(peer)
	if err == nil {
		err = request.Divert(cfg, private)
	}
	if err != nil {
		return nil, err
	}
	up.QP, up.Device = h.resumed, h.device.String()
	return up, nil
}

// reply returns the connection to which a Reply leads, without its queue pair, and the private
// data of the Reply.
func (h *Incoming) reply(hello wire.Hello) (*Connection, iwarp.Config, []byte, error) {
	local, peer := settle(h.promise(), hello)
	private, err := h.choice().Append(nil)
	return &Connection{Conn: h.conn, Local: local, Peer: peer, Promised: h.ours, Declined: h.declined, cfg: &h.cfg},
		h.cfg.mpaConfig(local, h.sameHost), local.AppendHelloAck(private), err
}
