package listener

import (
	"context"
	"fmt"
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

// run takes the connection through its stages. With an error it has closed it.
func (h *handshake) run() (*Incoming, error) {
	if s, ok := h.conn.(securing); ok {
		if err := s.HandshakeContext(h.ctx); err != nil {
			h.conn.Close()
			return nil, err
		}
	}
	v := glance(h.conn)
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
	if in.QP == nil {
		return in, nil
	}
	next := h.decide
	if h.resumed != nil {
		next = h.resume
	}
	if err := next(in); err != nil {
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
	offers, hello, err := wire.ParseOffers(request.Private)
	var peer wire.Hello
	if err == nil {
		peer, err = wire.ParseHello(hello)
	}
	if err != nil {
		// Not of ours, or wrong; either way there is no going on.
		request.Reject(nil)
		return nil, err
	}
	h.choose(&offers, &peer)
	if h.invitation == nil && h.resumed == nil && !h.stay {
		return h.reject(request)
	}
	in, err := h.accept(request, &offers, peer)
	if err != nil {
		h.withdraw()
	}
	return in, err
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
	local := h.l.cfg.Hello
	local.ORD = min(local.ORD, peer.IRD)
	peer.ORD = min(peer.ORD, local.IRD)
	private, err := h.choice().Append(nil)
	if err != nil {
		return nil, err
	}
	private = local.AppendHelloAck(private)
	sameHost := offers.HasHost && h.l.host.is(offers.Host)
	qp, err := request.Accept(iwarp.Config{
		NoCRC:    sameHost && !h.l.cfg.CRC,
		IRD:      int(local.IRD),
		ORD:      int(local.ORD),
		MaxULPDU: iwarp.SoftwareULPDU,
	}, private)
	if err != nil {
		return nil, err
	}
	qp.ProvideReceive(int(local.Bufs), int(local.LocalRcvSz))
	return &Incoming{
		Conn:     h.conn,
		QP:       qp,
		Device:   wire.DeviceIWARP.String(),
		Local:    local,
		Peer:     peer,
		Declined: h.declined,
	}, nil
}
