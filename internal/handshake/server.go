package handshake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gosdp/gosdp/internal/interrupt"
	"github.com/gosdp/gosdp/internal/timing"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

// Server holds what the handshakes of one listener share. It is safe for concurrent use.
type Server struct {
	cfg       Config
	listeners channelListeners
}

// NewServer returns a Server. The caller closes it after all its handshakes have ended.
func NewServer(cfg Config) *Server { return &Server{cfg: cfg} }

// Close ends the devices' listeners.
func (s *Server) Close() { s.listeners.close() }

// Serve performs the handshake on one connection that the caller has accepted. It returns
// when the connection is set up, ctx is done, or the handshake has failed. With an error it
// has closed the connection.
func Serve(ctx context.Context, conn net.Conn, cfg Config) (*Connection, error) {
	s := NewServer(cfg)
	defer s.Close()
	return s.Accepted(conn).Run(ctx)
}

// Accepted returns the handshake on a connection that a listener has accepted.
func (s *Server) Accepted(conn net.Conn) *Incoming {
	return &Incoming{Server: s, conn: conn, progress: Progress{State: Accepted}}
}

// Incoming is the server's half of one handshake. One goroutine at a time uses it, except
// for Progress and GiveWay, which are safe for concurrent use. Its methods panic if they are called in another order than
// its State permits.
type Incoming struct {
	*Server
	conn net.Conn
	all  context.Context // done when the handshake must end
	ctx  context.Context // of all, done when the time of the handshake is over
	channel
	request  *iwarp.Request // that was accepted
	sameHost bool           // the client says that it is on this host, and can prove it
	meeting  Meeting        // nil: the client cannot meet this end

	first  context.Context    // of ctx, done when the wait for the client's first bytes is over
	cancel context.CancelFunc // of all three

	mu       sync.Mutex
	progress Progress
	stopWait context.CancelFunc // of first
}

// Progress is how far a handshake has advanced. If there are too many handshakes, the listener
// uses it to decide which of them gives way.
type Progress struct {
	State State
	Since time.Time // when the client last advanced it, or Run was called
}

// Progress returns how far the handshake has advanced.
func (h *Incoming) Progress() Progress {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.progress
}

// GiveWay ends a handshake that was started, because others need its slot.
func (h *Incoming) GiveWay() {
	switch h.on(eventGiveWay) {
	case Yielding:
		h.stopWait()
	case Leaving:
		h.cancel()
	}
}

// on changes the state.
func (h *Incoming) on(e event) State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.onLocked(e)
}

func (h *Incoming) onLocked(e event) State {
	h.progress.State = h.progress.State.after(e)
	switch e {
	case eventRun, eventKey, eventRequest:
		h.progress.Since = time.Now()
	}
	return h.progress.State
}

// Plain returns the connection as plain TCP if the client is not to be asked. Nothing was read from
// it then. Otherwise it returns nil, and the caller calls Run.
func (h *Incoming) Plain() *Connection {
	if h.cfg.expects(h.conn) {
		h.on(eventAsk)
		return nil
	}
	h.on(eventPlain)
	return &Connection{Conn: h.conn}
}

// securing is a connection with a handshake of its own, such as that of TLS. Before it is done
// there are no bytes to examine, and an interruption would break it.
type securing interface {
	HandshakeContext(context.Context) error
}

// start starts the time that the handshake may take.
func (h *Incoming) start(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.onLocked(eventRun)
	var cancel, stop context.CancelFunc
	h.all, cancel = context.WithCancel(ctx)
	h.ctx, stop = context.WithTimeout(h.all, h.cfg.HandshakeTimeout)
	h.first, h.stopWait = context.WithCancel(h.ctx)
	h.cancel = func() { h.stopWait(); stop(); cancel() }
}

// Run performs the handshake. It ends when Config.HandshakeTimeout is over or ctx is done. If it
// returns an error, it has closed the connection.
func (h *Incoming) Run(ctx context.Context) (*Connection, error) {
	h.start(ctx)
	defer h.on(eventEnd)
	defer h.cancel()
	defer h.withdrawInvitation()
	up, err := h.run()
	h.takeBack(up)
	return up, err
}

func (h *Incoming) run() (*Connection, error) {
	if s, ok := h.conn.(securing); ok {
		if err := s.HandshakeContext(h.ctx); err != nil {
			h.conn.Close()
			return nil, err
		}
	}
	h.on(eventSecured)
	v, met, err := h.look()
	switch {
	case err != nil:
		h.conn.Close()
		return nil, err
	case met != nil:
		return &Connection{Conn: met, Met: true}, nil
	case v != isMPA:
		return h.notMPA(v)
	}
	h.on(eventKey)
	up, err := h.agree()
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) { // the time was over, or others needed the slot; see notMPA
			Abort(h.conn)
		} else {
			h.conn.Close()
		}
		return nil, err
	}
	if !up.MustDecide {
		return up, nil
	}
	h.on(eventReply)
	up.Conn.SetDeadline(time.Time{}) // the queue pair sets its own
	if err := h.decide(up); err != nil {
		up.QP.Abort()
		return nil, err
	}
	return up, nil
}

// look waits until the client's first bytes show what it speaks, the client has met this end, or the
// time is over. It returns an error if the client could only meet this end, and cannot.
func (h *Incoming) look() (v verdict, met net.Conn, err error) {
	if h.cfg.Meet != nil {
		h.meeting = h.cfg.Meet(h.conn)
	}
	try := h.meeting != nil
	for wait := timing.MeetFirst; ; wait = min(2*wait, timing.MeetMost) {
		late, until := h.first.Err() != nil, h.first
		if try {
			until = expired
		}
		v, h.conn = speaks(until, h.conn)
		if try && v != isMPA { // bytes may have followed the meeting
			met, err := h.meeting.Try()
			if met != nil {
				return v, met, nil
			}
			if err != nil {
				h.cfg.Logger.Debug("sdp: client not met in shared memory", "client", h.conn.RemoteAddr(), "reason", err)
				if len(h.cfg.Devices) == 0 {
					return v, nil, fmt.Errorf("handshake: meet %v: %w", h.conn.RemoteAddr(), err)
				}
				try = false
			}
		}
		switch {
		case v != undecided || late:
			return v, nil, nil
		case try:
			sleep(h.first, wait)
		}
	}
}

// expired is a context with which speaks only looks.
var expired = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// notMPA ends the handshake with a client that has not sent a Request. One that is silent, and may
// still send a Request, is reset: the program must not get the Request as data, and a client that was
// only slow connects again, which it does not after an orderly end.
func (h *Incoming) notMPA(v verdict) (*Connection, error) {
	switch {
	case v == undecided && (h.cfg.SDPOnly || h.Progress().State.Ending()):
		Abort(h.conn)
		return nil, fmt.Errorf("handshake: no MPA Request from %v: timed out", h.conn.RemoteAddr())
	case h.cfg.SDPOnly:
		h.conn.Close()
		return nil, fmt.Errorf("handshake: %v does not speak SDP", h.conn.RemoteAddr())
	}
	return h.plain(), nil
}

// plain returns the connection without SDP.
func (h *Incoming) plain() *Connection {
	if h.meeting != nil {
		return &Connection{Conn: h.meeting.Plain(), Met: true}
	}
	return &Connection{Conn: h.conn}
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
	h.on(eventRequest)
	offers, peer, err := h.parsePrivate(request.Private)
	if err != nil {
		if _, other := wire.OtherVersion(request.Private); other {
			return h.reject(request)
		}
		// Another program's Request, or a malformed one: there is nothing to agree on.
		request.Reject(nil)
		return nil, err
	}
	if h.promise() != nil {
		return h.reject(request)
	}
	h.choose(&offers)
	if h.invitation == nil && !h.stay {
		return h.reject(request)
	}
	return h.accept(request, peer)
}

// parsePrivate returns what a Request offers, and its Hello. It notes whether the client is
// on this host.
func (h *Incoming) parsePrivate(private []byte) (offers wire.Offers, peer wire.Hello, err error) {
	offers, hello, err := wire.ParseOffers(private)
	if err == nil {
		h.sameHost = offers.HasHost && madeHere(offers.Host)
		peer, err = wire.ParseHello(hello)
	}
	return offers, peer, err
}

// reject refuses SDP. The connection continues as plain TCP, which a choice without a device
// tells the client.
func (h *Incoming) reject(request *iwarp.Request) (*Connection, error) {
	if h.cfg.SDPOnly {
		request.Reject(nil)
		if !h.promised {
			return nil, fmt.Errorf("handshake: %v: %w", h.conn.RemoteAddr(), h.declined.Err())
		}
		return nil, fmt.Errorf("handshake: no device in common with %v", h.conn.RemoteAddr())
	}
	if err := rejectToPlain(request); err != nil {
		return nil, err
	}
	up := h.plain()
	up.Refused = true
	return up, nil
}

// accept replies with the choice. The TCP connection becomes iwarp's channel whatever the
// choice is, because the client's decision comes over it.
func (h *Incoming) accept(request *iwarp.Request, hello wire.Hello) (*Connection, error) {
	local, peer := negotiate(h.ours, hello)
	private, err := h.choice().Append(nil)
	if err != nil {
		return nil, err
	}
	qp, err := request.Accept(h.cfg.mpaConfig(local, h.sameHost), local.AppendHelloAck(private))
	if err != nil {
		return nil, err
	}
	qp.ProvideReceive(int(h.cfg.Hello.Bufs), int(h.cfg.Hello.LocalRcvSz))
	h.request = request
	return &Connection{
		Conn:       h.conn,
		QP:         qp,
		Device:     wire.DeviceIWARP.String(),
		Local:      local,
		Peer:       peer,
		Promised:   h.ours,
		MustDecide: true,
		Declined:   h.declined,
		cfg:        &h.cfg,
	}, nil
}
