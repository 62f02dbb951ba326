package sdp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

// mayReach returns nil if the device is worth offering to the peer at the other
// end of c.
func (a *attempt) mayReach(device wire.Device, c net.Conn) error {
	stepper, ok := stepperOf(device)
	if !ok {
		return nil // iwarp goes wherever the connection goes
	}
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return errors.New("the connection is no socket")
	}
	if err := a.devices.worthAt(device, addrPort(c.LocalAddr()).Addr()); err != nil {
		return err
	}
	return a.unreached(device, stepper.Reaches(rdma.Peer{
		SameHost: onThisHost(c),
		InDir:    a.meetIn != "",
		Local:    addrPort(c.LocalAddr()),
		Remote:   addrPort(c.RemoteAddr()),
	}))
}

func stepperOf(device wire.Device) (rdma.Stepper, bool) {
	d, _ := rdma.LookupDevice(device.String())
	s, ok := d.(rdma.Stepper)
	return s, ok
}

// stepUp goes on from c over the channel that the peer has chosen, and tells it
// so. Both results are nil if there is none to be had, and the connection stays
// on iwarp. If it cannot, it goes on as plain TCP, which is a *NotSDPError.
func (a *attempt) stepUp(ctx context.Context, c net.Conn, asked *iwarp.Asked, tcp *iwarp.QueuePair, choice wire.Choice, local wire.Hello) (*Conn, error) {
	name := choice.Device.String()
	up, peer, err := a.join(ctx, c, choice, local)
	if err != nil {
		a.decline(name, err)
		switch {
		case choice.Stay && a.offersIWARP():
			return nil, nil
		case a.network.only:
			tcp.Abort()
			return nil, a.declined.err()
		}
		return nil, a.fallBack(ctx, c, asked, tcp, local)
	}
	local.ORD, peer.ORD = min(local.ORD, peer.IRD), min(peer.ORD, local.IRD)
	c, err = announce(tcp, wire.MIDStepUp, local.Bufs)
	if err != nil {
		up.Abort()
		tcp.Abort()
		return nil, fmt.Errorf("stepping up to %s: %w", name, err)
	}
	return newConn(c, up, setup{device: name, dialled: true, decided: true, declined: a.declined, tuning: a.devices.tuning, local: local, peer: peer})
}

// fallBack tells the peer that the connection goes on as plain TCP, and waits until the
// peer has left the queue pair, which it says by a rejection. The error that it returns
// says whether c can be used.
func (a *attempt) fallBack(ctx context.Context, c net.Conn, asked *iwarp.Asked, tcp *iwarp.QueuePair, local wire.Hello) error {
	why := a.declined.err()
	if _, err := announce(tcp, wire.MIDPlain, local.Bufs); err != nil {
		tcp.Abort()
		return &NotSDPError{Addr: c.RemoteAddr(), Err: why}
	}
	_, err := replyWithin(ctx, a.replyTime(ctx), c, asked)
	return &NotSDPError{Addr: c.RemoteAddr(), Err: why, usable: keptOpen(err)}
}

// join opens the channel that the peer has chosen.
func (a *attempt) join(ctx context.Context, c net.Conn, choice wire.Choice, local wire.Hello) (rdma.QueuePair, wire.Hello, error) {
	if !choice.HasToken {
		return nil, wire.Hello{}, errors.New("the peer has sent no token")
	}
	stepper, _ := stepperOf(choice.Device)
	dialler, ok := stepper.(rdma.Dialler)
	if !ok {
		return nil, wire.Hello{}, errors.New("the peer invites us to a device that is not dialled")
	}
	ctx, cancel := context.WithTimeout(ctx, share(ctx, a.cfg.StepUpTimeout))
	defer cancel()
	var peer wire.Hello
	qp, err := dialler.Dial(ctx,
		rdma.Address{
			Token:  choice.Token,
			Port:   choice.Port,
			Local:  addrPort(c.LocalAddr()).Addr(),
			Remote: addrPort(c.RemoteAddr()).Addr(),
		},
		a.stepConfig(),
		local.AppendHello(nil),
		func(reply []byte) (ord int, err error) {
			peer, err = wire.ParseHelloAck(reply)
			return int(min(local.ORD, peer.IRD)), err
		})
	return qp, peer, err
}

func (a *attempt) stepConfig() rdma.StepConfig {
	return rdma.StepConfig{
		IRD:      maxReads,
		Buffers:  recvBuffers,
		BufSize:  int(ourHello(a.cfg.ReadBuffer).LocalRcvSz),
		UIDs:     a.cfg.PeerUIDs,
		Dir:      a.meetIn,
		ZeroCopy: a.devices.zeroCopy(),
	}
}

// whereabouts says how the peer at the other end of c was found.
func (a *attempt) whereabouts(c net.Conn) string {
	to := c.RemoteAddr()
	at := to.Network() + " " + to.String()
	if a.meetIn != "" {
		at += " " + a.meetIn
	}
	return at
}

// offerChannel has the Request offer a channel, if a device is offered whose channels the
// client offers: an idle one, over which a connection to the same place has gone before, or a
// new one. It returns a device that has neither to offer, which is declined.
func (a *attempt) offerChannel(c net.Conn, o *wire.Offers) {
	for _, device := range o.Devices {
		stepper, _ := stepperOf(device)
		offerer, ok := stepper.(rdma.Offerer)
		if !ok {
			continue
		}
		var err error
		o.Channel, a.channelOf = wire.IdleChannel, device
		// Whether an idle one is still there is for the peer to say, and if not, it takes
		// another connection to offer a new one.
		if a.d != nil && !a.stale {
			a.channel = offerer.Idle(a.whereabouts(c), a.stepConfig())
		}
		if a.channel == nil {
			o.Channel = wire.NewChannel
			a.channel, err = offerer.Offer(a.whereabouts(c), a.stepConfig())
		}
		if err != nil {
			a.decline(device.String(), err)
			o.Channel, a.channel = wire.NoChannel, nil
			o.Devices = slices.DeleteFunc(o.Devices, func(d wire.Device) bool { return d == device })
			return
		}
		a.idle = o.Channel == wire.IdleChannel
		o.Ticket = a.channel.Ticket()
		return
	}
}

// dropChannel ends the channel that was offered, if the peer has not taken it.
func (a *attempt) dropChannel() {
	if a.channel != nil {
		a.channel.Drop()
		a.channel = nil
	}
}

// take goes on from c over the channel that was offered and that the peer has taken. If
// it cannot, the error is that of notTaken.
func (a *attempt) take(ctx context.Context, c net.Conn, device wire.Device, local, peer wire.Hello) (*Conn, error) {
	if a.channel == nil || device != a.channelOf {
		return nil, fmt.Errorf("the peer takes a channel of %v, which we did not offer", device)
	}
	if !a.idle && a.devices.zeroCopy() { // otherwise Take does not wait
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, share(ctx, a.cfg.StepUpTimeout))
		defer cancel()
	}
	up, err := a.channel.Take(ctx, int(local.ORD))
	if err != nil {
		a.decline(device.String(), err)
		return nil, a.notTaken(c, err)
	}
	a.channel = nil
	return newConn(c, up, setup{device: device.String(), dialled: true, decided: true, declined: a.declined, tuning: a.devices.tuning, local: local, peer: peer})
}

// notTaken is what a Dial ends with whose channel did not come up for this reason, and says
// whether it is worth another connection. On network sdp the server is told that the channel
// is not taken only after it has lost this connection, which it would take for plain TCP. So it
// is with zero copy: Take may have failed after it told the server that the channel is taken.
func (a *attempt) notTaken(c net.Conn, err error) error {
	not := &NotSDPError{Addr: c.RemoteAddr(), Err: a.declined.err()}
	switch {
	case a.idle:
		a.stale, a.again = true, true
	case a.network.only:
		abort(c)
		a.failed.set(a.channelOf.String(), err.Error())
		a.again = a.d != nil && len(a.offered) > 1
		return a.declined.err()
	case a.devices.zeroCopy():
		abort(c)
	default:
		not.usable = true
	}
	return not
}

// announce tells the peer our decision, after which the connection is no queue pair any
// more, and returns what it was on.
func announce(tcp *iwarp.QueuePair, decision wire.MID, bufs uint16) (net.Conn, error) {
	m := wire.Message{Header: wire.Header{MID: decision, Bufs: bufs, MSeq: 1}}
	var b [wire.MaxHeaderLen]byte
	if _, err := tcp.PostSend([]rdma.SendWR{{Header: m.AppendHeader(b[:0])}}); err != nil {
		return nil, err
	}
	for tcp.Busy() {
		if err := tcp.WaitRoom(); err != nil {
			return nil, err
		}
	}
	return tcp.Detach()
}

// passedOver notes which devices were offered that the peer has not chosen.
func (a *attempt) passedOver() {
	for _, device := range a.offered {
		if device != wire.DeviceIWARP {
			a.decline(device.String(), errors.New("the peer has not chosen it"))
		}
	}
}

// declined counts what Totals.Declined says.
var declined atomic.Uint64

// decline notes why a device is not used that was offered.
func (a *attempt) decline(name string, why error) {
	declined.Add(1)
	a.declined.set(name, why.Error())
	a.cfg.Logger.Debug("sdp: a device is not used", "device", name, "address", a.address, "reason", why)
}

func (a *attempt) offersIWARP() bool {
	for _, device := range a.offered {
		if device == wire.DeviceIWARP {
			return true
		}
	}
	return false
}
