package listener

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gosdp/gosdp/internal/interrupt"
	"github.com/gosdp/gosdp/internal/shmdir"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

// handshake is a connection on its way up. It belongs to its goroutine, but for
// the last group.
type handshake struct {
	l    *Listener
	conn net.Conn
	ctx  context.Context // done when its time is over; nil before begin
	stepUp
	request  *iwarp.Request // that was accepted
	accepted time.Time
	expected expectation
	held     *shmdir.Held // claims that may be for it; nil: there are none
	met      *Incoming    // over a channel that the client has offered and has still to take; nil: none
	placed   bool         // has one of the listener's places
	passed   bool         // later ones have overtaken it; guarded by l.mu

	// Guarded by l.mu.
	in      *Incoming          // it is up, and waits for Accept
	cancel  context.CancelFunc // of ctx
	heard   bool               // the client speaks MPA
	since   time.Time          // when it was heard; before, when it was accepted
	giveWay func()             // ends the present stage: securing it or the look, then all of it
	leaving bool               // giveWay was called
}

// begin begins the time that the handshake may take; cancel ends it.
func (h *handshake) begin(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, h.l.cfg.HandshakeTime)
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	h.ctx, h.cancel, h.since, h.giveWay = ctx, cancel, time.Now(), func() {}
	if _, ok := h.conn.(securing); ok {
		h.giveWay = cancel
	}
}

// securing is a connection with a handshake of its own, such as TLS's: until that
// is done there is nothing to look at, and to interrupt it breaks it.
type securing interface {
	HandshakeContext(context.Context) error
}

// look waits until it is certain what the client speaks, or has had its time. Of a
// client on this host it asks again and again whether it still means to send a Request:
// it may have found that it cannot.
func (h *handshake) look() verdict {
	look, stop := context.WithCancel(h.ctx)
	defer stop()
	h.l.mu.Lock()
	h.giveWay = stop
	if h.leaving {
		stop()
	}
	h.l.mu.Unlock()
	for wait := recheckFirst; ; wait = min(4*wait, recheckMost) {
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
		case h.stillExpects() == nothing:
			return isPlain
		}
	}
}

// unexpected returns the connection of a client of which no Request is expected, as plain
// TCP. It returns nil if one is there all the same, of a client that has given up before it
// was accepted: that must not get to the program.
func (h *handshake) unexpected() *Incoming {
	if isSocket(h.conn) {
		if _, v := first(h.conn, make([]byte, iwarp.KeyLen)); v == isMPA {
			return nil
		}
	}
	return &Incoming{Conn: h.conn}
}

// prompt brings a connection up that need not wait for anything: one that is certainly
// plain TCP, or goes on over a channel that has been kept. It returns nil for all others,
// of which it has consumed nothing. With an error it has closed the connection. It looks
// for a moment for a Request that is certain to come.
func (h *handshake) prompt() (*Incoming, error) {
	if !isSocket(h.conn) {
		return nil, nil // it might block although the kernel does not
	}
	var b [iwarp.MaxRequest]byte
	n, v := first(h.conn, b[:])
	if v == undecided && (h.expected == certain || h.l.cfg.SDPOnly && onThisHost(h.conn)) {
		h.l.requests.For(func() (over, worth bool) {
			n, v = first(h.conn, b[:])
			return v != undecided, v == isMPA
		})
	}
	if v == isPlain && !h.l.cfg.SDPOnly {
		return &Incoming{Conn: h.conn}, nil
	}
	length := iwarp.RequestLen(b[:n])
	if length == 0 || n < length {
		return nil, nil
	}
	request, err := iwarp.ParseRequest(h.conn, b[:length])
	if err != nil {
		return nil, nil // who reads it says so
	}
	offers, peer, err := parsePrivate(request.Private)
	if err != nil || offers.Channel == wire.NoChannel || !h.chooseOffered(&offers, &peer) {
		h.stale = false // it is tried again, and said
		return nil, nil
	}
	var in *Incoming
	if _, err = io.ReadFull(h.conn, b[:length]); err == nil {
		in, err = h.takeOffered(request, &offers, peer)
	}
	switch {
	case err != nil:
	case h.meeting == nil:
		return in, nil
	default:
		h.met = in
		h.l.decisions.For(func() (over, worth bool) {
			over = h.meeting.Decided()
			return over, over
		})
		if !h.meeting.Decided() {
			return nil, nil
		}
		in, err = h.decided(context.Background())
	}
	if err != nil {
		h.withdraw()
		h.conn.Close()
	}
	return in, err
}

// run takes the connection through its stages. With an error it has closed it.
func (h *handshake) run() (*Incoming, error) {
	if h.met != nil {
		h.hear()
		in, err := h.waitDecided()
		if err != nil {
			h.withdraw()
			h.conn.Close()
		}
		return in, err
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
		return h.plain(v)
	}
	h.reads()
	in, err := h.agree()
	if err != nil {
		h.conn.Close()
		return nil, err
	}
	if in.QP == nil || h.resumed != nil || h.meeting != nil {
		return in, nil
	}
	if err := h.decide(in); err != nil {
		in.QP.Abort()
		return nil, err
	}
	return in, nil
}

// plain is what becomes of a client that has not sent a Request. One that is silent, and
// may still send one, is no plain client: its Request must not get to the program.
func (h *handshake) plain(v verdict) (*Incoming, error) {
	h.l.mu.Lock()
	gaveWay := h.leaving
	h.l.mu.Unlock()
	switch {
	case h.l.cfg.SDPOnly:
		h.conn.Close()
		return nil, fmt.Errorf("listener: %v does not speak SDP", h.conn.RemoteAddr())
	case v == undecided && (gaveWay || h.expected == certain) && h.stillExpects() != nothing:
		abort(h.conn)
		return nil, fmt.Errorf("listener: %v has not sent the Request that it was about to", h.conn.RemoteAddr())
	}
	return &Incoming{Conn: h.conn}, nil
}

// abort closes c with a reset, if it can.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

// reads notes that the client speaks MPA, and that its Request is being read: to give way
// ends all of it from now on.
func (h *handshake) reads() {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	h.since, h.giveWay, h.leaving = time.Now(), h.cancel, false
}

// hear notes that the client has sent its Request. Had it been told to give way for its
// silence, that is void.
func (h *handshake) hear() {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	h.heard, h.since, h.giveWay, h.leaving = true, time.Now(), h.cancel, false
}

// agree reads the client's Request and answers it. The connection is a queue
// pair afterwards, or plain.
func (h *handshake) agree() (*Incoming, error) {
	defer interrupt.Conn(h.ctx, h.conn)()
	request, err := iwarp.ReadRequest(h.conn)
	if err != nil {
		return nil, err
	}
	h.hear()
	offers, peer, err := parsePrivate(request.Private)
	if err != nil {
		if _, other := wire.OtherVersion(request.Private); other {
			return h.reject(request)
		}
		// Not of ours, or wrong; either way there is no going on.
		request.Reject(nil)
		return nil, err
	}
	h.choose(&offers, &peer)
	var in *Incoming
	switch {
	case h.resumed != nil:
		in, err = h.takeOffered(request, &offers, peer)
	case h.stale: // the client comes again, and offers another one
		request.Reject(nil)
		err = errors.New("listener: the channel that the client offers is not kept any more")
	case h.meeting != nil:
		if h.met, err = h.takeOffered(request, &offers, peer); err == nil {
			in, err = h.waitDecided()
		}
	case h.invitation != nil || h.stay:
		in, err = h.accept(request, &offers, peer)
	default:
		return h.reject(request)
	}
	if err != nil {
		h.withdraw()
	}
	return in, err
}

// parsePrivate returns what a Request offers, and its Hello.
func parsePrivate(private []byte) (offers wire.Offers, peer wire.Hello, err error) {
	offers, hello, err := wire.ParseOffers(private)
	if err == nil {
		peer, err = wire.ParseHello(hello)
	}
	return offers, peer, err
}

// reject refuses SDP to a client of ours. By its choice, which names no device,
// the client knows that the connection goes on as plain TCP.
func (h *handshake) reject(request *iwarp.Request) (*Incoming, error) {
	if h.l.cfg.SDPOnly {
		request.Reject(nil)
		return nil, fmt.Errorf("listener: no device in common with %v", h.conn.RemoteAddr())
	}
	if err := rejectAll(request); err != nil {
		return nil, err
	}
	return &Incoming{Conn: h.conn}, nil
}

// rejectAll has a client of ours go on as plain TCP.
func rejectAll(request *iwarp.Request) error {
	none, err := (&wire.Choice{Device: wire.DeviceNone}).Append(nil)
	if err != nil {
		return err
	}
	return request.Reject(none)
}

// accept answers with the choice. The TCP connection becomes iwarp's channel,
// whatever that is: the client's decision comes over it.
func (h *handshake) accept(request *iwarp.Request, offers *wire.Offers, peer wire.Hello) (*Incoming, error) {
	in, cfg := h.incoming(offers, &peer)
	private, err := h.says(h.choice(), &peer)
	if err != nil {
		return nil, err
	}
	qp, err := request.Accept(cfg, private)
	if err != nil {
		return nil, err
	}
	qp.ProvideReceive(int(h.l.cfg.Hello.Bufs), int(h.l.cfg.Hello.LocalRcvSz))
	in.QP, in.Device, h.request = qp, wire.DeviceIWARP.String(), request
	return in, nil
}

// takeOffered answers that our end of the channel that the client has offered is open. Hello
// and HelloAck are the channel's. A client that has offered an idle channel has decided by
// that: there is nothing more to wait for.
func (h *handshake) takeOffered(request *iwarp.Request, offers *wire.Offers, peer wire.Hello) (*Incoming, error) {
	in, cfg := h.incoming(offers, &peer)
	in.QP, in.Device = h.resumed, h.device.String()
	private, err := h.says(h.choice(), &peer)
	if err == nil {
		err = request.Divert(cfg, private)
	}
	if err != nil {
		return nil, err
	}
	return in, nil
}

// waitDecided is decided within the time that the client has for that. It takes the
// connection for up as soon as it has the Reply: nobody else's need of its place ends it
// now, and a machine that thousands dial may take its time.
func (h *handshake) waitDecided() (*Incoming, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), max(h.l.cfg.StepUpTime, patience))
	defer cancel()
	return h.decided(ctx)
}

// decided waits until the client has taken the new channel that it has offered. A client
// that does without it goes on as plain TCP.
func (h *handshake) decided(ctx context.Context) (*Incoming, error) {
	var err error
	h.met.QP, err = h.meeting.Take(ctx)
	switch {
	case err == nil:
		return h.met, nil
	case !errors.Is(err, rdma.ErrDeclined):
		return nil, fmt.Errorf("listener: %v has taken the channel of %v, and is not there: %w", h.conn.RemoteAddr(), h.device, err)
	}
	n, v := first(h.conn, make([]byte, iwarp.KeyLen))
	if closed := n == 0 && v == isPlain; closed || h.l.cfg.SDPOnly {
		return nil, fmt.Errorf("listener: %v has not taken the channel of %v", h.conn.RemoteAddr(), h.device)
	}
	h.l.cfg.Logger.Debug("sdp: a client goes on as plain TCP", "client", h.conn.RemoteAddr(), "device", h.device)
	return &Incoming{Conn: h.conn}, nil
}

// incoming is the connection that a Reply that accepts leads to, which has no queue
// pair yet, and what MPA is told of it.
func (h *handshake) incoming(offers *wire.Offers, hello *wire.Hello) (*Incoming, iwarp.Config) {
	local, peer := h.settled(hello)
	sameHost := offers.HasHost && h.l.host.is(offers.Host)
	return &Incoming{Conn: h.conn, Local: local, Peer: peer, Declined: h.declined, withdraw: h.l.cfg.Withdraw}, iwarp.Config{
		NoCRC:    sameHost && !h.l.cfg.CRC,
		IRD:      int(local.IRD),
		ORD:      int(local.ORD),
		MaxULPDU: iwarp.SoftwareULPDU,
	}
}
