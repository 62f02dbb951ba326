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

// If a device makes channels of its own (rdma.Dialler), the client dials one after the server has
// invited it.

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
		return false, errTooLate
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
	d, _ := dialler(choice.Device)
	up.Local, up.Peer = negotiate(startHello(d, up.Local), peer)
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
	d, ok := dialler(choice.Device)
	if !ok {
		return nil, wire.Hello{}, errors.New("invitation to a device that cannot be dialed")
	}
	ctx, cancel := context.WithTimeout(ctx, share(ctx, c.StepUpTimeout))
	defer cancel()
	var peer wire.Hello
	local := startHello(d, up.Local)
	qp, err := d.Dial(ctx,
		rdma.Address{
			Token:  choice.Token,
			Port:   choice.Port,
			Local:  addrPort(up.Conn.LocalAddr()).Addr(),
			Remote: addrPort(up.Conn.RemoteAddr()).Addr(),
			TOS:    tos(up.Conn),
		},
		c.channelConfig(d),
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
