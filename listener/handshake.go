package listener

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gosdp/gosdp/internal/interrupt"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

// handshake is a connection on its way up. It belongs to its goroutine, but for
// the last group.
type handshake struct {
	l      *Listener
	conn   net.Conn
	ctx    context.Context // done when its time is over
	cancel context.CancelFunc
	stepUp

	// Guarded by l.mu.
	heard   bool      // the client speaks MPA
	since   time.Time // when it was heard; before, when it was accepted
	giveWay func()    // ends the present stage: securing it or the look, then all of it
	leaving bool      // giveWay was called
}

// handshake begins the handshake on c: its times run from now on. done ends
// them.
func (l *Listener) handshake(ctx context.Context, c net.Conn) (h *handshake, done func()) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.HandshakeTime)
	h = &handshake{l: l, conn: c, ctx: ctx, cancel: cancel, since: time.Now(), giveWay: func() {}}
	if _, ok := c.(securing); ok {
		h.giveWay = cancel
	}
	return h, cancel
}

// securing is a connection with a handshake of its own, such as TLS's: until that
// is done there is nothing to look at, and to interrupt it breaks it.
type securing interface {
	HandshakeContext(context.Context) error
}

// look waits until it is certain what the client speaks, or has had its time.
func (h *handshake) look() verdict {
	mpa, instead := speaksMPA(h.lookUntil(), h.conn)
	if instead != nil {
		h.conn = instead
	}
	if mpa {
		return isMPA
	}
	return isPlain
}

// lookUntil returns the context of the look, whose time begins now.
func (h *handshake) lookUntil() context.Context {
	limit := h.l.cfg.LookTime
	if h.l.cfg.SDPOnly {
		limit = h.l.cfg.HandshakeTime
	}
	look, stop := context.WithTimeout(h.ctx, limit)
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	h.giveWay = stop
	if h.leaving {
		stop()
	}
	return look
}

// prompt brings a connection up that need not wait for anything: of a client that
// goes on over a channel that has been kept, or of plain TCP, which has sent
// enough. It returns nil for all others, of which it has consumed nothing. With
// an error it has closed the connection. While channels are kept, it looks for the
// Request of a client on this host for a moment.
func (h *handshake) prompt() (*Incoming, error) {
	if !isSocket(h.conn) {
		return nil, nil // it might block although the kernel does not
	}
	var b [iwarp.MaxRequest]byte
	n, v := first(h.conn, b[:])
	place := h.keeping()
	if v == undecided && place != nil {
		h.l.requests.For(func() (over, worth bool) {
			n, v = first(h.conn, b[:])
			return v != undecided, v == isMPA
		})
	}
	if v == isPlain && !h.l.cfg.SDPOnly {
		return &Incoming{Conn: h.conn}, nil
	}
	length := iwarp.RequestLen(b[:n])
	if place == nil || length == 0 || n < length {
		return nil, nil
	}
	request, err := iwarp.ParseRequest(h.conn, b[:length])
	if err != nil {
		return nil, nil // who reads it says so
	}
	offers, peer, err := parsePrivate(request.Private)
	if err != nil || !offers.HasChannel {
		return nil, nil
	}
	if !h.chooseKept(place, &offers, &peer) {
		return nil, nil
	}
	var in *Incoming
	if _, err = io.ReadFull(h.conn, b[:length]); err == nil {
		in, err = h.resume(request, &offers, peer)
	}
	if err != nil {
		h.withdraw()
		h.conn.Close()
	}
	return in, err
}

// run takes the connection through its stages. With an error it has closed it.
func (h *handshake) run() (*Incoming, error) {
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
	if v == isPlain {
		if h.l.cfg.SDPOnly {
			h.conn.Close()
			return nil, fmt.Errorf("listener: %v does not speak SDP", h.conn.RemoteAddr())
		}
		return &Incoming{Conn: h.conn}, nil
	}
	h.hear()
	in, err := h.agree()
	if err != nil {
		h.conn.Close()
		return nil, err
	}
	if in.QP == nil || h.resumed != nil {
		return in, nil
	}
	if err := h.decide(in); err != nil {
		in.QP.Abort()
		return nil, err
	}
	return in, nil
}

// hear notes that the client speaks MPA. Had it been told to give way for its
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
	offers, peer, err := parsePrivate(request.Private)
	if err != nil {
		// Not of ours, or wrong; either way there is no going on.
		request.Reject(nil)
		return nil, err
	}
	h.choose(&offers, &peer)
	var in *Incoming
	switch {
	case h.resumed != nil:
		in, err = h.resume(request, &offers, peer)
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
	none, err := (&wire.Choice{Device: wire.DeviceNone}).Append(nil)
	if err != nil {
		return nil, err
	}
	if err := request.Reject(none); err != nil {
		return nil, err
	}
	return &Incoming{Conn: h.conn}, nil
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
	qp.ProvideReceive(int(in.Local.Bufs), int(in.Local.LocalRcvSz))
	in.QP, in.Device = qp, wire.DeviceIWARP.String()
	return in, nil
}

// resume answers that the connection goes on over the channel that the client has
// offered, unless it knows. There is nothing more to wait for: the client has
// decided when it offered the channel, and Hello and HelloAck are the channel's.
func (h *handshake) resume(request *iwarp.Request, offers *wire.Offers, peer wire.Hello) (*Incoming, error) {
	in, cfg := h.incoming(offers, &peer)
	in.QP, in.Device = h.resumed, h.device.String()
	if h.told {
		return in, nil
	}
	private, err := h.says(h.choice(), &peer)
	if err == nil {
		err = request.Divert(cfg, private)
	}
	if err != nil {
		return nil, err
	}
	return in, nil
}

// incoming is the connection that a Reply that accepts leads to, which has no queue
// pair yet, and what MPA is told of it.
func (h *handshake) incoming(offers *wire.Offers, hello *wire.Hello) (*Incoming, iwarp.Config) {
	local, peer := h.settled(hello)
	sameHost := offers.HasHost && h.l.host.is(offers.Host)
	return &Incoming{Conn: h.conn, Local: local, Peer: peer, Declined: h.declined}, iwarp.Config{
		NoCRC:    sameHost && !h.l.cfg.CRC,
		IRD:      int(local.IRD),
		ORD:      int(local.ORD),
		MaxULPDU: iwarp.SoftwareULPDU,
	}
}
