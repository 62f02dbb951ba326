package handshake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

// If a device makes channels of its own (rdma.Transport), the client offers one with its Request
// (offerChannel, take), or dials one after the server has invited it (stepUp).

// offerChannel adds a channel to the offers, if they have a device whose channels the client
// offers: an idle one from an earlier connection to the same server, or a new one. It
// declines a device that has neither.
func (c *Client) offerChannel(conn net.Conn, o *wire.Offers) {
	for _, device := range o.Devices {
		t, _ := transport(device)
		offerer, ok := t.(rdma.Offerer)
		if !ok {
			continue
		}
		server := keptFor(conn.RemoteAddr().Network(), conn.RemoteAddr().String(), c.meetIn)
		var err error
		o.Channel, c.channelDevice = wire.IdleChannel, device
		// Only the server knows whether it still has an idle channel. If it does not, it
		// takes another connection to offer a new one.
		c.channel = c.over.take(conn)
		if c.channel == nil && c.Redials && !c.stale {
			c.channel = offerer.Idle(server, c.channelConfig(offerer, c.meetIn))
		}
		if c.channel == nil {
			o.Channel = wire.NewChannel
			c.channel, err = offerer.Offer(server, c.channelConfig(offerer, c.meetIn))
		}
		if err != nil {
			c.decline(&c.declined, device, conn, err)
			o.Channel, c.channel = wire.NoChannel, nil
			o.Devices = slices.DeleteFunc(o.Devices, func(d wire.Device) bool { return d == device })
			return
		}
		c.resumes = o.Channel == wire.IdleChannel
		o.Ticket = c.channel.Ticket()
		return
	}
}

// dropChannel ends the channel that was offered, unless the connection uses it.
func (c *Client) dropChannel() {
	if c.channel != nil {
		c.channel.Drop()
		c.channel = nil
	}
}

// take makes up use the channel that was offered, after the server has said that its end is open.
func (c *Client) take(up *Connection, device wire.Device) error {
	if c.channel == nil || device != c.channelDevice {
		return fmt.Errorf("peer accepted a channel of %v, which was not offered", device)
	}
	var err error
	if up.QP, err = c.channel.Take(int(up.Local.ORD)); err != nil {
		c.decline(&c.declined, device, up.Conn, err)
		return c.notTaken(up.Conn, err)
	}
	c.channel = nil
	return nil
}

// notTaken returns the error for a channel that could not be opened, and decides whether another
// connection is worth trying. With SDPOnly the connection is closed before the channel is
// dropped, or the server would take it for plain TCP.
func (c *Client) notTaken(conn net.Conn, err error) error {
	not := &NotSDPError{Addr: conn.RemoteAddr(), Err: c.declined.Err()}
	switch {
	case c.resumes:
		c.stale, c.retry = true, true
	case c.SDPOnly && c.tooLate(conn):
		Abort(conn)
		return c.again()
	case c.SDPOnly:
		Abort(conn)
		c.failed.Set(c.channelDevice, err.Error())
		c.retry = c.Redials && len(c.offered) > 1
		return c.declined.Err()
	default:
		not.Usable = true
	}
	return not
}

// stepUp makes up use the channel to which the server has invited the client, and tells the
// server. It reports whether the connection stays on iwarp instead. If that is not possible
// either, the connection continues as plain TCP, and stepUp returns a *NotSDPError.
func (c *Client) stepUp(ctx context.Context, up *Connection, asked *iwarp.Asked, tcp *iwarp.QueuePair, choice wire.Choice) (stays bool, err error) {
	qp, peer, err := c.dialChannel(ctx, up, choice)
	late := (err == nil || !c.SDPOnly) && c.tooLate(up.Conn)
	if err == nil && late {
		qp.Abort()
		err = errTooLate
	}
	if late && c.SDPOnly {
		tcp.Abort()
		return false, c.again()
	}
	if err != nil {
		c.decline(&c.declined, choice.Device, up.Conn, err)
		switch {
		case !late && choice.Stay && slices.Contains(c.offered, wire.DeviceIWARP):
			return true, nil
		case c.SDPOnly:
			tcp.Abort()
			return false, c.declined.Err()
		}
		return false, c.fallBack(ctx, up, asked, tcp)
	}
	up.QP = qp
	t, _ := transport(choice.Device)
	up.Local, up.Peer = settle(starts(t, up.Local), peer)
	if up.Conn, err = announce(tcp, wire.MIDStepUp, up.Local.Bufs); err != nil {
		qp.Abort()
		tcp.Abort()
		return false, fmt.Errorf("step up to %v: %w", choice.Device, err)
	}
	return false, nil
}

// dialChannel opens the channel that the server has invited the client to.
func (c *Client) dialChannel(ctx context.Context, up *Connection, choice wire.Choice) (rdma.QueuePair, wire.Hello, error) {
	if !choice.HasToken {
		return nil, wire.Hello{}, errors.New("invitation without token")
	}
	t, _ := transport(choice.Device)
	dialler, ok := t.(rdma.Dialler)
	if !ok {
		return nil, wire.Hello{}, errors.New("invitation to a device that cannot be dialed")
	}
	ctx, cancel := context.WithTimeout(ctx, share(ctx, c.StepUpTimeout))
	defer cancel()
	var peer wire.Hello
	local := starts(t, up.Local)
	qp, err := dialler.Dial(ctx,
		rdma.Address{
			Token:  choice.Token,
			Port:   choice.Port,
			Local:  addrPort(up.Conn.LocalAddr()).Addr(),
			Remote: addrPort(up.Conn.RemoteAddr()).Addr(),
			TOS:    tos(up.Conn),
		},
		c.channelConfig(t, ""),
		local.AppendHello(nil),
		func(reply []byte) (ord int, err error) {
			peer, err = wire.ParseHelloAck(reply)
			return int(min(up.Local.ORD, peer.IRD)), err
		})
	return qp, peer, err
}

// fallBack tells the server that the connection continues as plain TCP, and waits until the
// server confirms by a rejection that it has left the queue pair. The error that it returns
// says whether the connection can be used.
func (c *Client) fallBack(ctx context.Context, up *Connection, asked *iwarp.Asked, tcp *iwarp.QueuePair) error {
	not := &NotSDPError{Addr: up.Conn.RemoteAddr(), Err: c.declined.Err()}
	if _, err := announce(tcp, wire.MIDPlain, up.Local.Bufs); err != nil {
		tcp.Abort()
		return not
	}
	_, err := replyWithin(ctx, share(ctx, c.ReplyTimeout), up.Conn, asked)
	not.Usable = keepsOpen(err)
	return not
}

// announce sends the client's decision to leave the queue pair, and returns the connection
// that it was on.
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
