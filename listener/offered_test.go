package listener

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/handshake/handshaketest"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

func offeredConfig() handshake.Config {
	cfg := testConfig()
	cfg.Devices = []wire.Device{wire.DeviceSHM, wire.DeviceIWARP}
	return cfg
}

// offers is a client that offers a channel, and what the server replies.
func offers(t *testing.T, l *Listener, channel wire.Channel, ticket rdma.Ticket, change func(o *wire.Offers)) (*net.TCPConn, wire.Choice, error) {
	t.Helper()
	c, _, choice, err := asks(t, l, channel, ticket, change)
	return c, choice, err
}

// asks is offers, for a client that goes on from there.
func asks(t *testing.T, l *Listener, channel wire.Channel, ticket rdma.Ticket, change func(o *wire.Offers)) (*net.TCPConn, *iwarp.Asked, wire.Choice, error) {
	t.Helper()
	c := dial(t, l, "")
	o := wire.Offers{
		Devices: []wire.Device{wire.DeviceIWARP, wire.DeviceSHM},
		Client:  c.LocalAddr().(*net.TCPAddr).AddrPort(),
		Server:  c.RemoteAddr().(*net.TCPAddr).AddrPort(),
		Ticket:  ticket, Channel: channel,
	}
	o.Host, o.HasHost = handshake.HostID([16]byte{1})
	if change != nil {
		change(&o)
	}
	asked, err := iwarp.Ask(c, iwarp.Config{}, handshaketest.Private(t, o, handshaketest.Hello()))
	require.NoError(t, err)
	private, err := asked.Reply()
	if err != nil {
		return c, asked, wire.Choice{}, err
	}
	choice, _, err := wire.ParseChoice(private)
	require.NoError(t, err)
	return c, asked, choice, nil
}

var taken = wire.Choice{Device: wire.DeviceSHM, Taken: true}

// idleConn checks that the TCP connection is there, and has carried nothing else.
func idleConn(t *testing.T, server net.Conn, client *net.TCPConn) {
	t.Helper()
	require.NoError(t, client.CloseWrite())
	got, err := io.ReadAll(server)
	require.NoError(t, err)
	assert.Empty(t, got)
	require.NoError(t, server.Close())
	got, err = io.ReadAll(client)
	require.NoError(t, err)
	assert.Empty(t, got)
}

// TestIdleChannel takes the channel that the client offers, and waits for nothing more.
func TestIdleChannel(t *testing.T) {
	handshaketest.SHM.Reset()
	handshaketest.SHM.Kept, _ = handshaketest.QueuePairs(t)
	l := listen(t, offeredConfig(), 8)
	c, choice, err := offers(t, l, wire.IdleChannel, handshaketest.IdleTicket, nil)
	require.NoError(t, err)
	require.Equal(t, taken, choice)
	in := accept(t, l)
	assert.Equal(t, "shm", in.Device)
	assert.Same(t, handshaketest.SHM.Kept, in.QP)
	assert.Nil(t, in.First)
	assert.EqualValues(t, 64, in.Local.Bufs)
	assert.EqualValues(t, 32, in.Peer.Bufs)
	idleConn(t, in.Conn, c)
}

// TestIdleChannelIsNotKept: the Request is rejected, and the program hears nothing of it; the
// client comes again.
func TestIdleChannelIsNotKept(t *testing.T) {
	handshaketest.SHM.Reset()
	l := listen(t, offeredConfig(), 8)
	c, _, err := offers(t, l, wire.IdleChannel, handshaketest.IdleTicket, nil)
	var rejected *iwarp.RejectError
	require.ErrorAs(t, err, &rejected)
	assert.Empty(t, rejected.Private)
	_, err = c.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF)
	dial(t, l, "plain")
	in := accept(t, l)
	assert.Nil(t, in.QP)
	got := make([]byte, 5)
	_, err = io.ReadFull(in.Conn, got)
	require.NoError(t, err)
	assert.Equal(t, "plain", string(got))
	in.Conn.Close()
}

// TestNewChannel is the client's when it has decided, before or after the accepting
// goroutine has looked for that.
func TestNewChannel(t *testing.T) {
	for _, early := range []bool{true, false} {
		handshaketest.SHM.Reset()
		handshaketest.SHM.Channel, _ = handshaketest.QueuePairs(t)
		if early {
			handshaketest.SHM.Decisions <- nil
		}
		l := listen(t, offeredConfig(), 8)
		c, choice, err := offers(t, l, wire.NewChannel, handshaketest.NewTicket, nil)
		require.NoError(t, err)
		require.Equal(t, taken, choice)
		if !early {
			awaitUnderway(t, l, 1)
			handshaketest.SHM.Decisions <- nil
		}
		in := accept(t, l)
		assert.Equal(t, "shm", in.Device)
		assert.Same(t, handshaketest.SHM.Channel, in.QP)
		assert.Nil(t, in.First)
		assert.EqualValues(t, 64, in.Local.Bufs)
		assert.EqualValues(t, 32, in.Peer.Bufs)
		assert.Empty(t, in.Declined)
		idleConn(t, in.Conn, c)
	}
}

// TestDeclined: a client that does without the channel goes on as plain TCP, unless it is
// gone altogether, or plain TCP is not served.
func TestDeclined(t *testing.T) {
	l := listen(t, offeredConfig(), 8)
	handshaketest.SHM.Reset()
	c, choice, err := offers(t, l, wire.NewChannel, handshaketest.NewTicket, nil)
	require.NoError(t, err)
	require.Equal(t, taken, choice)
	handshaketest.SHM.Decisions <- rdma.ErrDeclined
	in := accept(t, l)
	assert.Nil(t, in.QP)
	_, err = c.Write([]byte("plain"))
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(in.Conn, got)
	require.NoError(t, err)
	assert.Equal(t, "plain", string(got))
	in.Conn.Close()

	ended := func(l *Listener, gone bool) {
		t.Helper()
		handshaketest.SHM.Reset()
		c, _, err := offers(t, l, wire.NewChannel, handshaketest.NewTicket, nil)
		require.NoError(t, err)
		if gone {
			handshake.Abort(c)
		}
		handshaketest.SHM.Decisions <- rdma.ErrDeclined
		require.Eventually(t, handshaketest.SHM.Withdrawn, time.Minute, time.Millisecond)
		if !gone {
			_, err = c.Read(make([]byte, 1))
			assert.ErrorIs(t, err, io.EOF)
		}
	}
	ended(l, true)
	dial(t, l, "next")
	in = accept(t, l)
	_, err = io.ReadFull(in.Conn, got[:4])
	require.NoError(t, err)
	assert.Equal(t, "next", string(got[:4]), "the program hears nothing of the one before")
	in.Conn.Close()

	cfg := offeredConfig()
	cfg.SDPOnly = true
	ended(listen(t, cfg, 8), false)
}

// TestDeclinedAndShutDown: a client that does without the channel, and whose program sends nothing and
// shuts down its direction, gets an answer.
func TestDeclinedAndShutDown(t *testing.T) {
	handshaketest.SHM.Reset()
	l := listen(t, offeredConfig(), 8)
	c, choice, err := offers(t, l, wire.NewChannel, handshaketest.NewTicket, nil)
	require.NoError(t, err)
	require.Equal(t, taken, choice)
	require.NoError(t, c.CloseWrite())
	handshaketest.SHM.Decisions <- rdma.ErrDeclined
	in := accept(t, l)
	assert.Nil(t, in.QP)
	got, err := io.ReadAll(in.Conn)
	require.NoError(t, err)
	assert.Empty(t, got)
	_, err = in.Conn.Write([]byte("answer"))
	require.NoError(t, err)
	require.NoError(t, in.Conn.Close())
	got, err = io.ReadAll(c)
	require.NoError(t, err)
	assert.Equal(t, "answer", string(got))
}

// TestNobodyTakesTheChannel: the connection ends, since the client takes it for up.
func TestNobodyTakesTheChannel(t *testing.T) {
	for name, why := range map[string]error{"silence": nil, "it breaks a rule": errors.New("no proof")} {
		t.Run(name, func(t *testing.T) {
			handshaketest.SHM.Reset()
			if why != nil {
				handshaketest.SHM.Decisions <- why
			}
			cfg := offeredConfig()
			cfg.StepUpTimeout, cfg.DecisionTimeout = 0, 20*time.Millisecond
			l := listen(t, cfg, 8)
			c, choice, err := offers(t, l, wire.NewChannel, handshaketest.NewTicket, nil)
			require.NoError(t, err)
			require.Equal(t, taken, choice)
			_, err = c.Read(make([]byte, 1))
			assert.ErrorIs(t, err, io.EOF)
			assert.True(t, handshaketest.SHM.Withdrawn())
		})
	}
}

// TestNoChannel falls back to what else there is: a ticket replaces no other check.
func TestNoChannel(t *testing.T) {
	for _, v := range []struct {
		name     string
		channel  wire.Channel
		ticket   rdma.Ticket
		change   func(o *wire.Offers)
		declined string
	}{
		{"none is offered", wire.NoChannel, rdma.Ticket{}, nil, "no channel offered by client"},
		{"nobody is there", wire.NewChannel, handshaketest.IdleTicket, nil, "nobody is there"},
		{"through a proxy", wire.NewChannel, handshaketest.NewTicket, func(o *wire.Offers) { o.Client = netip.MustParseAddrPort("192.0.2.1:1") }, "proxy or NAT in between"},
		{"an idle one through a proxy", wire.IdleChannel, handshaketest.IdleTicket, func(o *wire.Offers) { o.Client = netip.MustParseAddrPort("192.0.2.1:1") }, "proxy or NAT in between"},
		{"of a device that it does not offer", wire.NewChannel, handshaketest.NewTicket, func(o *wire.Offers) { o.Devices = o.Devices[:1] }, "not offered by client"},
	} {
		t.Run(v.name, func(t *testing.T) {
			handshaketest.SHM.Reset()
			handshaketest.SHM.Kept, _ = handshaketest.QueuePairs(t)
			l := listen(t, offeredConfig(), 8)
			_, asked, choice, err := asks(t, l, v.channel, v.ticket, v.change)
			require.NoError(t, err)
			assert.Equal(t, wire.Choice{Device: wire.DeviceIWARP}, choice)
			qp, err := asked.QueuePair()
			require.NoError(t, err)
			defer qp.Abort()
			handshaketest.Send(t, qp, handshaketest.Stay())
			in := accept(t, l)
			assert.Equal(t, "iwarp", in.Device)
			assert.Contains(t, in.Declined.Of(wire.DeviceSHM), v.declined)
			assert.False(t, handshaketest.SHM.Met())
		})
	}
}
