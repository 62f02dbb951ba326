package handshake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gosdp/gosdp/internal/interrupt"
	"github.com/gosdp/gosdp/internal/timing"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

// decisionTime returns the least time that a client has, after the server's Reply, to decide, and then for the channel
// on which it has decided. The client believes that the connection is set up, and a machine that thousands dial may be
// slow. A client that has taken longer since its Request does not decide any more (Client.tooLate).
func (cfg *Config) decisionTime() time.Duration {
	if cfg.DecisionTimeout > 0 {
		return cfg.DecisionTimeout
	}
	return timing.Decision
}

// channel is the part of an Incoming that deals with a device other than the TCP connection.
type channel struct {
	device     wire.Device     // to whose channel the client is invited
	invitation rdma.Invitation // nil: there is none
	stay       bool            // both ends may use iwarp
	declined   Reasons

	ours     wire.Hello // if promised
	promised bool

	// The Hellos of the two ends on the channel to which the client was invited. They belong
	// to the invitation until it has been taken.
	local, peer wire.Hello
}

// choose finds the best device that both ends have and that can connect them, and invites the
// client to its channel if it has one of its own.
func (h *Incoming) choose(offers *wire.Offers) {
	h.declined = slices.Clip(h.cfg.Declined)
	h.stay = slices.Contains(offers.Devices, wire.DeviceIWARP) && slices.Contains(h.cfg.Devices, wire.DeviceIWARP)
	for _, device := range h.cfg.Devices {
		if device == wire.DeviceIWARP {
			if h.stay {
				return
			}
			continue
		}
		err := errNotOffered
		if slices.Contains(offers.Devices, device) {
			if err = h.invite(device, offers); err == nil {
				return
			}
		}
		h.cfg.decline(&h.declined, device, h.conn, err)
	}
}

// invite invites the client to a channel of the device.
func (h *Incoming) invite(device wire.Device, offers *wire.Offers) error {
	d, ok := dialler(device)
	if !ok {
		return errors.New("not compiled into this program")
	}
	if err := h.cfg.worth(device, h.conn); err != nil {
		return err
	}
	client := rdma.Peer{Local: addrPort(h.conn.LocalAddr()), Remote: addrPort(h.conn.RemoteAddr())}
	if !h.cfg.ThroughProxies && !offers.SameTuple(client.Remote, client.Local) {
		return errProxy
	}
	if err := d.Reaches(client); err != nil {
		return err
	}
	listener, err := h.listeners.of(device, d, &h.cfg)
	if err != nil {
		return err
	}
	h.device = device
	h.invitation, err = listener.Invite(client, h.answer)
	return err
}

// errProxy is the reason why a client that is not at the other end of the connection is not invited.
var errProxy = errors.New("client sees other addresses of the connection: proxy or NAT in between")

// promise makes this end's Hello, whose buffers are reserved from then on. If there is no room for them, no
// device can be used.
func (h *Incoming) promise() (err error) {
	if h.ours, err = h.cfg.promise(); err == nil {
		h.promised = true
		return nil
	}
	h.declined = slices.Clip(h.cfg.Declined)
	for _, device := range h.cfg.Devices {
		h.cfg.decline(&h.declined, device, h.conn, err)
	}
	return err
}

// takeBack takes the promise back, unless the handshake has led to a connection over SDP.
func (h *Incoming) takeBack(up *Connection) {
	if h.promised && (up == nil || up.QP == nil) {
		h.cfg.withdraw(h.ours)
	}
}

// answer takes the client's Hello on the channel to which it was invited, and returns the
// HelloAck.
func (h *Incoming) answer(private []byte) (reply []byte, ord int, err error) {
	hello, err := wire.ParseHello(private)
	if err != nil {
		return nil, 0, err
	}
	d, _ := dialler(h.device)
	h.local, h.peer = negotiate(startHello(d, h.ours), hello)
	return h.local.AppendHelloAck(nil), int(h.local.ORD), nil
}

// choice returns the choice in the Reply.
func (h *Incoming) choice() *wire.Choice {
	if h.invitation == nil {
		return &wire.Choice{Device: wire.DeviceIWARP}
	}
	a := h.invitation.Address()
	return &wire.Choice{Device: h.device, Token: a.Token, HasToken: true, Port: a.Port, Stay: h.stay}
}

// timeAfterReply is how long a client may take after the Reply.
func (h *Incoming) timeAfterReply() time.Duration {
	return max(h.cfg.StepUpTimeout, h.cfg.decisionTime())
}

// deciding returns the context for the client's decision. Its time is that of the handshake, or if the
// Reply was late, what a client may take after it.
func (h *Incoming) deciding() (context.Context, context.CancelFunc) {
	end := time.Now().Add(h.timeAfterReply())
	if handshake, _ := h.ctx.Deadline(); handshake.After(end) {
		end = handshake
	}
	return context.WithDeadline(h.all, end)
}

// decide waits for the client's decision on the queue pair of up, and carries it out.
func (h *Incoming) decide(up *Connection) error {
	ctx, cancel := h.deciding()
	defer cancel()
	first, err := decision(ctx, up.QP)
	up.MustDecide = false
	switch {
	case err != nil:
	case first.MID == wire.MIDStepUp && h.invitation == nil:
		err = errors.New("handshake: step up without invitation")
	case first.MID == wire.MIDStepUp:
		err = h.move(up)
	case first.MID == wire.MIDPlain && h.cfg.SDPOnly:
		err = errors.New("handshake: client asked for plain TCP, which is not served")
	case first.MID == wire.MIDPlain:
		if h.invitation != nil {
			h.cfg.decline(&h.declined, h.device, h.conn, h.whyNotTaken())
		}
		err = h.fallBack(ctx, up)
	case !h.stay:
		err = fmt.Errorf("handshake: client stays on %v, which both ends did not offer", wire.DeviceIWARP)
	default:
		up.First = &first
		if h.invitation != nil {
			h.cfg.decline(&h.declined, h.device, h.conn, h.whyNotTaken())
			up.Declined = h.declined
		}
	}
	return err
}

// whyNotTaken returns why the client, which was invited to a channel, does without it. If it came and
// was rejected, the reason is this end's.
func (h *Incoming) whyNotTaken() error {
	qp, err := h.invitation.Take(expired)
	switch {
	case err == nil:
		qp.Abort()
	case !errors.Is(err, context.Canceled):
		return err
	}
	return errors.New("client did not connect")
}

// takeInvited returns the channel to which the client was invited, and which it says is open.
func (h *Incoming) takeInvited() (rdma.QueuePair, error) {
	for left := h.timeAfterReply(); ; left -= timing.Slice {
		ctx, cancel := context.WithTimeout(context.Background(), min(left, timing.Slice))
		qp, err := h.invitation.Take(ctx)
		late := ctx.Err() != nil
		cancel()
		if err == nil || !late || left <= timing.Slice {
			return qp, err
		}
	}
}

// move makes up use the channel to which the client was invited.
func (h *Incoming) move(up *Connection) error {
	qp, err := h.takeInvited()
	if err != nil {
		return fmt.Errorf("handshake: step up to %v: client did not connect: %w", h.device, err)
	}
	conn, err := up.QP.(*iwarp.QueuePair).Detach()
	if err != nil {
		qp.Abort()
		return err
	}
	up.Conn, up.QP, up.Device, up.Local, up.Peer = conn, qp, h.device.String(), h.local, h.peer
	return nil
}

// fallBack makes up continue as plain TCP, and tells the client. The client sends nothing before
// that, because it would still belong to the queue pair.
func (h *Incoming) fallBack(ctx context.Context, up *Connection) error {
	conn, err := up.QP.(*iwarp.QueuePair).Detach()
	if err != nil {
		return err
	}
	defer interrupt.Conn(ctx, conn)()
	if err := rejectToPlain(h.request); err != nil {
		conn.Close()
		return err
	}
	h.cfg.Logger.Debug("sdp: client falls back to plain TCP", "client", conn.RemoteAddr(), "device", h.device)
	*up = Connection{Conn: conn}
	return nil
}

// withdrawInvitation ends an invitation, also if it has been taken.
func (h *Incoming) withdrawInvitation() {
	if h.invitation != nil {
		h.invitation.Withdraw()
	}
}

// channelListeners are the devices' listeners. Each is opened when it is first needed.
type channelListeners struct {
	mu     sync.Mutex
	open   map[wire.Device]rdma.InviteListener
	closed bool
}

// of returns the listener of the device.
func (l *channelListeners) of(device wire.Device, d rdma.Dialler, cfg *Config) (rdma.InviteListener, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if listener, ok := l.open[device]; ok {
		return listener, nil
	}
	if l.closed {
		return nil, net.ErrClosed
	}
	listener, err := d.Listen(cfg.channelConfig(d))
	if err != nil {
		return nil, err
	}
	if l.open == nil {
		l.open = make(map[wire.Device]rdma.InviteListener)
	}
	l.open[device] = listener
	return listener, nil
}

func (l *channelListeners) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, listener := range l.open {
		listener.Close()
	}
	l.open = nil
}
