package listener

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/gosdp/gosdp/internal/interrupt"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

// stepUp is a handshake's way to another device than the TCP connection.
type stepUp struct {
	device     wire.Device       // that the client is invited to
	invitation rdma.Invitation   // nil: none
	meeting    rdma.Meeting      // over the new channel that the client has offered; nil: none
	resumed    rdma.QueuePair    // over the idle channel that the client has offered; nil: none
	stale      bool              // the client has offered an idle channel that is not kept
	stay       bool              // both ends may use iwarp
	declined   map[string]string // device: why it is not used

	ours     wire.Hello // if promised
	promised bool

	// What has been said on the new channel. It belongs to the invitation until
	// that has been taken.
	local, peer wire.Hello
}

// choose finds the best device that both ends have and that can connect them,
// and invites the client to it.
func (h *handshake) choose(offers *wire.Offers, peer *wire.Hello) {
	h.stay = slices.Contains(offers.Devices, wire.DeviceIWARP) &&
		slices.Contains(h.l.cfg.Devices, wire.DeviceIWARP.String())
	for _, name := range h.l.cfg.Devices {
		if name == wire.DeviceIWARP.String() {
			if h.stay {
				return
			}
			continue
		}
		i := slices.IndexFunc(offers.Devices, func(d wire.Device) bool { return d.String() == name })
		if i < 0 {
			h.decline(name, errors.New("the client does not offer it"))
			continue
		}
		h.device = offers.Devices[i]
		err := h.invite(name, offers, peer)
		if err == nil || h.stale {
			return
		}
		h.decline(name, err)
	}
}

func (h *handshake) decline(name string, why error) {
	if h.declined == nil {
		h.declined = make(map[string]string)
	}
	h.declined[name] = why.Error()
	h.l.cfg.Logger.Debug("sdp: a device is not used", "device", name, "client", h.conn.RemoteAddr(), "reason", why)
}

// invite has the client come to a channel of the device, or resumes the one that
// it has offered.
func (h *handshake) invite(name string, offers *wire.Offers, hello *wire.Hello) error {
	if !isSocket(h.conn) {
		return errors.New("the connection is no socket")
	}
	device, ok := rdma.LookupDevice(name)
	stepper, can := device.(rdma.Stepper)
	if !ok || !can {
		return errors.New("not in this program")
	}
	peer, err := h.peerOf(offers)
	if err != nil {
		return err
	}
	if worth := h.l.cfg.Worth; worth != nil {
		if err := worth(h.device, peer.Local.Addr()); err != nil {
			return err
		}
	}
	if err := h.meetsElsewhere(stepper, offers, &peer); err != nil {
		return err
	}
	if err := stepper.Reaches(peer); err != nil {
		return err
	}
	place, err := h.l.places.of(name, stepper, &h.l.cfg)
	if err != nil {
		return err
	}
	switch place := place.(type) {
	case rdma.OfferedPlace:
		local, _ := h.settled(hello)
		switch offers.Channel {
		case wire.IdleChannel:
			h.resumed, err = place.Resume(peer, offers.Ticket, int(local.ORD))
			h.stale = err != nil
		case wire.NewChannel:
			h.meeting, err = place.Meet(peer, offers.Ticket, int(local.ORD))
		default:
			err = errors.New("the client offers no channel")
		}
	case rdma.InvitingPlace:
		h.promise() // for answer, which another goroutine calls
		h.invitation, err = place.Invite(peer, h.answer)
	}
	return err
}

// promise returns what we tell the client of ourselves, whose buffers are promised to it
// from then on.
func (h *handshake) promise() wire.Hello {
	if !h.promised {
		h.promised, h.ours = true, h.l.cfg.Hello
		if h.l.cfg.Promise != nil {
			h.ours = h.l.cfg.Promise()
		}
	}
	return h.ours
}

// over ends the handshake, and takes the promise back if in, what it has come to, is no
// connection over SDP.
func (h *handshake) over(in *Incoming) {
	if h.promised && (in == nil || in.QP == nil) && h.l.cfg.Withdraw != nil {
		h.l.cfg.Withdraw(h.ours)
	}
}

// settled returns both Hellos with what each end may have outstanding at the other.
func (h *handshake) settled(hello *wire.Hello) (local, peer wire.Hello) {
	local, peer = h.promise(), *hello
	local.ORD = min(local.ORD, peer.IRD)
	peer.ORD = min(peer.ORD, local.IRD)
	return local, peer
}

// says returns what an answer to the client says.
func (h *handshake) says(choice *wire.Choice, hello *wire.Hello) ([]byte, error) {
	private, err := choice.Append(nil)
	local, _ := h.settled(hello)
	return local.AppendHelloAck(private), err
}

// errProxy is why a client is not invited that is not at the other end of the
// connection.
var errProxy = errors.New("the client sees other ends of the connection: something is between us")

// peerOf is what we know of the client.
func (h *handshake) peerOf(offers *wire.Offers) (rdma.Peer, error) {
	peer := rdma.Peer{
		SameHost: offers.HasHost && h.l.host.is(offers.Host),
		InDir:    h.l.cfg.Dir != nil && offers.SameDir(h.l.cfg.Dir.ID()),
		Local:    addrPort(h.conn.LocalAddr()),
		Remote:   addrPort(h.conn.RemoteAddr()),
	}
	switch {
	case h.l.cfg.ThroughProxies:
	case peer.Local.IsValid():
		if !offers.SameTuple(peer.Remote, peer.Local) && !h.translated(offers, &peer) {
			return peer, errProxy
		}
	default: // a Unix socket knows whose it is
		if peer.PID = peerPID(h.conn); peer.PID == 0 {
			return peer, errors.New("the connection does not tell whose it is")
		}
	}
	return peer, nil
}

// addrPort returns the address of TCP, and an invalid one for another's.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return tcp.AddrPort()
}

// answer takes the Hello that the client says on the new channel, and returns
// the HelloAck.
func (h *handshake) answer(private []byte) (reply []byte, ord int, err error) {
	h.peer, err = wire.ParseHello(private)
	if err != nil {
		return nil, 0, err
	}
	h.local = h.ours
	h.local.ORD = min(h.local.ORD, h.peer.IRD)
	h.peer.ORD = min(h.peer.ORD, h.local.IRD)
	return h.local.AppendHelloAck(nil), int(h.local.ORD), nil
}

// choice is what the Reply says.
func (h *handshake) choice() *wire.Choice {
	if h.resumed != nil || h.meeting != nil {
		return &wire.Choice{Device: h.device, Taken: true}
	}
	if h.invitation == nil {
		return &wire.Choice{Device: wire.DeviceIWARP}
	}
	a := h.invitation.Address()
	return &wire.Choice{Device: h.device, Token: a.Token, HasToken: true, Port: a.Port, Stay: h.stay}
}

// decide waits for the client's decision, and has in what it says.
func (h *handshake) decide(in *Incoming) error {
	first, err := decision(h.ctx, in.QP)
	switch {
	case err != nil:
	case first.MID == wire.MIDStepUp && h.invitation == nil:
		err = errors.New("listener: the client steps up, and was not invited")
	case first.MID == wire.MIDStepUp:
		err = h.move(in)
	case first.MID == wire.MIDPlain && h.l.cfg.SDPOnly:
		err = errors.New("listener: the client goes on as plain TCP, which is not served")
	case first.MID == wire.MIDPlain:
		err = h.fallBack(in)
	case !h.stay:
		err = fmt.Errorf("listener: the client stays on %v, which was not offered by both", wire.DeviceIWARP)
	default:
		in.First = &first
		if h.invitation != nil {
			h.decline(h.device.String(), errors.New("the client has not come"))
			in.Declined = h.declined
		}
	}
	h.withdraw()
	return err
}

// move has in go on over the new channel.
func (h *handshake) move(in *Incoming) error {
	// The client has come, and takes the connection for up: nobody else's need of
	// its place ends it now, and a machine that thousands dial may take its time.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), max(h.l.cfg.StepUpTime, patience))
	defer cancel()
	qp, err := h.invitation.Take(ctx)
	if err != nil {
		return fmt.Errorf("listener: the client steps up to %v, and is not there: %w", h.device, err)
	}
	conn, err := in.QP.(*iwarp.QueuePair).Detach()
	if err != nil {
		qp.Abort()
		return err
	}
	in.Conn, in.QP, in.Device, in.Local, in.Peer = conn, qp, h.device.String(), h.local, h.peer
	return nil
}

// fallBack has in go on as plain TCP, and tells the client, which waits for that: what
// came before it was told would still be the queue pair's.
func (h *handshake) fallBack(in *Incoming) error {
	conn, err := in.QP.(*iwarp.QueuePair).Detach()
	if err != nil {
		return err
	}
	defer interrupt.Conn(h.ctx, conn)()
	if err := rejectAll(h.request); err != nil {
		conn.Close()
		return err
	}
	h.l.cfg.Logger.Debug("sdp: a client goes on as plain TCP", "client", conn.RemoteAddr(), "device", h.device)
	*in = Incoming{Conn: conn}
	return nil
}

// withdraw ends an invitation that nobody has taken.
func (h *handshake) withdraw() {
	if h.resumed != nil {
		h.resumed.Abort()
	}
	if h.meeting != nil {
		h.meeting.Withdraw()
	}
	if h.invitation != nil {
		h.invitation.Withdraw()
	}
}

// places are where clients are invited to, one for each device, from when it is
// first needed.
type places struct {
	mu     sync.Mutex
	open   map[string]rdma.Place
	closed bool
}

// of returns the device's place.
func (p *places) of(name string, s rdma.Stepper, cfg *Config) (rdma.Place, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place, ok := p.open[name]; ok {
		return place, nil
	}
	if p.closed {
		return nil, net.ErrClosed
	}
	place, err := s.Listen(rdma.StepConfig{
		IRD:      int(cfg.Hello.IRD),
		Buffers:  int(cfg.Hello.Bufs),
		BufSize:  int(cfg.Hello.LocalRcvSz),
		UIDs:     cfg.UIDs,
		Dir:      dirPath(cfg.Dir),
		ZeroCopy: cfg.ZeroCopy,
		Timeout:  cfg.StepUpTime,
	})
	if err != nil {
		return nil, err
	}
	if p.open == nil {
		p.open = make(map[string]rdma.Place)
	}
	p.open[name] = place
	return place, nil
}

// chooseOffered takes the channel that the client offers, if it is one of our best device's,
// and the end of it that is to be ours can be had, and reports whether it has. It waits for
// nothing. Whatever else there may be to choose from, it leaves.
func (h *handshake) chooseOffered(offers *wire.Offers, hello *wire.Hello) bool {
	if len(h.l.cfg.Devices) == 0 {
		return false
	}
	name := h.l.cfg.Devices[0]
	i := slices.IndexFunc(offers.Devices, func(d wire.Device) bool { return d.String() == name })
	device, _ := rdma.LookupDevice(name)
	if _, ok := device.(rdma.Offerer); !ok || i < 0 {
		return false
	}
	h.device = offers.Devices[i]
	return h.invite(name, offers, hello) == nil
}

// onThisHost reports that c ends where it begins.
func onThisHost(c net.Conn) bool {
	if _, local := c.LocalAddr().(*net.UnixAddr); local {
		return true
	}
	local, remote := addrPort(c.LocalAddr()).Addr().Unmap(), addrPort(c.RemoteAddr()).Addr().Unmap()
	return remote.IsValid() && (remote.IsLoopback() || remote == local)
}

// isSocket reports that c is the kernel's own, and not something around it.
func isSocket(c net.Conn) bool {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}

func (p *places) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, place := range p.open {
		place.Close()
	}
	p.open = nil
}
