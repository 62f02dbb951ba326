package listener

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

// offerer is a device whose channels clients offer, and that the tests make.
type offerer struct {
	mu      sync.Mutex
	refuses error // of Meet
	idle    rdma.QueuePair
	channel rdma.QueuePair // of newTicket, when the client has
	decided chan error     // to take it or not
	met     *meeting
}

var (
	idleTicket = rdma.Ticket{4, 5, 6}
	newTicket  = rdma.Ticket{7, 8, 9}
)

func (d *offerer) Name() string                               { return "shm" }
func (d *offerer) Probe() error                               { return nil }
func (d *offerer) Reaches(rdma.Peer) error                    { return nil }
func (d *offerer) Listen(rdma.StepConfig) (rdma.Place, error) { return offeredPlace{d}, nil }
func (d *offerer) Idle(string, rdma.StepConfig) rdma.Offer    { return nil }
func (d *offerer) Offer(string, rdma.StepConfig) (rdma.Offer, error) {
	return nil, errors.New("nobody dials here")
}

type offeredPlace struct{ d *offerer }

func (p offeredPlace) Resume(_ rdma.Peer, t rdma.Ticket, _ int) (rdma.QueuePair, error) {
	if p.d.idle == nil || t != idleTicket {
		return nil, errors.New("there is none")
	}
	return p.d.idle, nil
}

func (p offeredPlace) Meet(_ rdma.Peer, t rdma.Ticket, _ int) (rdma.Meeting, error) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if t != newTicket || p.d.refuses != nil {
		return nil, errors.Join(errors.New("nobody is there"), p.d.refuses)
	}
	p.d.met = &meeting{d: p.d}
	return p.d.met, nil
}

func (offeredPlace) Close() error { return nil }

// meeting is the end of a channel that the listener has opened.
type meeting struct {
	d         *offerer
	withdrawn bool
}

func (m *meeting) Decided() bool { return len(m.d.decided) > 0 }

func (m *meeting) Take(ctx context.Context) (rdma.QueuePair, error) {
	select {
	case err := <-m.d.decided:
		return m.d.channel, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *meeting) Withdraw() {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.withdrawn = true
}

// fakeShm is registered once: a device is for the whole program.
var fakeShm = func() *offerer {
	d := new(offerer)
	rdma.RegisterDevice(d)
	return d
}()

func (d *offerer) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuses, d.idle, d.channel, d.met = nil, nil, nil, nil
	d.decided = make(chan error, 1)
}

func (d *offerer) wasWithdrawn() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.met != nil && d.met.withdrawn
}

func offeredConfig() Config {
	cfg := testConfig()
	cfg.Devices = []string{"shm", "iwarp"}
	cfg.StepUpTime = 100 * time.Millisecond
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
	o.Host, o.HasHost = HostID([16]byte{1})
	if change != nil {
		change(&o)
	}
	asked, err := iwarp.Ask(c, iwarp.Config{}, privateOf(t, o, helloOf()))
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

// idleConn checks that the TCP connection is there, and carries nothing.
func idleConn(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	assert.True(t, timeout.Timeout())
}

// TestIdleChannel takes the channel that the client offers, and waits for nothing more.
func TestIdleChannel(t *testing.T) {
	fakeShm.reset()
	fakeShm.idle, _ = queuePairs(t)
	l := listen(t, offeredConfig(), 8)
	_, choice, err := offers(t, l, wire.IdleChannel, idleTicket, nil)
	require.NoError(t, err)
	require.Equal(t, taken, choice)
	in := accept(t, l)
	assert.Equal(t, "shm", in.Device)
	assert.Same(t, fakeShm.idle, in.QP)
	assert.Nil(t, in.First)
	assert.EqualValues(t, 64, in.Local.Bufs)
	assert.EqualValues(t, 32, in.Peer.Bufs)
	idleConn(t, in.Conn)
	in.Conn.Close()
}

// TestIdleChannelIsNotKept: the Request is rejected, and the program hears nothing of it; the
// client comes again.
func TestIdleChannelIsNotKept(t *testing.T) {
	fakeShm.reset()
	l := listen(t, offeredConfig(), 8)
	c, _, err := offers(t, l, wire.IdleChannel, idleTicket, nil)
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
		fakeShm.reset()
		fakeShm.channel, _ = queuePairs(t)
		if early {
			fakeShm.decided <- nil
		}
		l := listen(t, offeredConfig(), 8)
		_, choice, err := offers(t, l, wire.NewChannel, newTicket, nil)
		require.NoError(t, err)
		require.Equal(t, taken, choice)
		if !early {
			l.decisions.For(func() (over, worth bool) { return true, true })
			fakeShm.decided <- nil
		}
		in := accept(t, l)
		assert.Equal(t, "shm", in.Device)
		assert.Same(t, fakeShm.channel, in.QP)
		assert.Nil(t, in.First)
		assert.EqualValues(t, 64, in.Local.Bufs)
		assert.EqualValues(t, 32, in.Peer.Bufs)
		assert.Empty(t, in.Declined)
		idleConn(t, in.Conn)
		in.Conn.Close()
	}
}

// TestDeclined: a client that does without the channel goes on as plain TCP, unless it is
// gone altogether, or plain TCP is not served.
func TestDeclined(t *testing.T) {
	l := listen(t, offeredConfig(), 8)
	fakeShm.reset()
	c, choice, err := offers(t, l, wire.NewChannel, newTicket, nil)
	require.NoError(t, err)
	require.Equal(t, taken, choice)
	fakeShm.decided <- rdma.ErrDeclined
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
		fakeShm.reset()
		c, _, err := offers(t, l, wire.NewChannel, newTicket, nil)
		require.NoError(t, err)
		if gone {
			abort(c)
		}
		fakeShm.decided <- rdma.ErrDeclined
		require.Eventually(t, fakeShm.wasWithdrawn, 5*time.Second, time.Millisecond)
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

// TestNobodyTakesTheChannel: the connection ends, since the client takes it for up.
func TestNobodyTakesTheChannel(t *testing.T) {
	for name, why := range map[string]error{"silence": nil, "it breaks a rule": errors.New("no proof")} {
		t.Run(name, func(t *testing.T) {
			fakeShm.reset()
			if why != nil {
				fakeShm.decided <- why
			}
			l := listen(t, offeredConfig(), 8)
			c, choice, err := offers(t, l, wire.NewChannel, newTicket, nil)
			require.NoError(t, err)
			require.Equal(t, taken, choice)
			c.SetReadDeadline(time.Now().Add(2*patience + 5*time.Second))
			_, err = c.Read(make([]byte, 1))
			assert.ErrorIs(t, err, io.EOF)
			assert.True(t, fakeShm.wasWithdrawn())
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
		{"none is offered", wire.NoChannel, rdma.Ticket{}, nil, "the client offers no channel"},
		{"nobody is there", wire.NewChannel, idleTicket, nil, "nobody is there"},
		{"through a proxy", wire.NewChannel, newTicket, func(o *wire.Offers) { o.Client = netip.MustParseAddrPort("192.0.2.1:1") }, "something is between us"},
		{"an idle one through a proxy", wire.IdleChannel, idleTicket, func(o *wire.Offers) { o.Client = netip.MustParseAddrPort("192.0.2.1:1") }, "something is between us"},
		{"of a device that it does not offer", wire.NewChannel, newTicket, func(o *wire.Offers) { o.Devices = o.Devices[:1] }, "does not offer it"},
	} {
		t.Run(v.name, func(t *testing.T) {
			fakeShm.reset()
			fakeShm.idle, _ = queuePairs(t)
			l := listen(t, offeredConfig(), 8)
			_, asked, choice, err := asks(t, l, v.channel, v.ticket, v.change)
			require.NoError(t, err)
			assert.Equal(t, wire.Choice{Device: wire.DeviceIWARP}, choice)
			qp, err := asked.QueuePair()
			require.NoError(t, err)
			defer qp.Abort()
			send(t, qp, stay())
			in := accept(t, l)
			assert.Equal(t, "iwarp", in.Device)
			assert.Contains(t, in.Declined["shm"], v.declined)
			fakeShm.mu.Lock()
			assert.Nil(t, fakeShm.met)
			fakeShm.mu.Unlock()
		})
	}
}
