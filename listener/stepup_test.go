package listener

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/handshake/handshaketest"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
	"github.com/gosdp/gosdp/wire"
)

// stepper is a device whose channels are made by the tests.
type stepper struct {
	rdma.BaseDevice

	mu      sync.Mutex
	asked   []rdma.Peer
	refuses error // of Reaches
	none    error // of Listen
	channel rdma.QueuePair
	failed  error // of Take
	late    bool  // the first Take ends with its time
	invited *invitation
	places  int // that are open
}

func (s *stepper) Name() string { return "verbs" }
func (s *stepper) Probe() error { return nil }

func (s *stepper) Start() (buffers, size int) { return math.MaxInt, math.MaxInt }

func (s *stepper) Reaches(p rdma.Peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, p)
	return s.refuses
}

func (s *stepper) Listen(rdma.ChannelConfig) (rdma.InviteListener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.none == nil {
		s.places++
	}
	return &stepPlace{s}, s.none
}

func (s *stepper) Dial(context.Context, rdma.Address, rdma.ChannelConfig, []byte, func([]byte) (int, error)) (rdma.QueuePair, error) {
	return nil, errors.New("nobody dials here")
}

type stepPlace struct{ s *stepper }

func (p *stepPlace) Invite(_ rdma.Peer, answer func([]byte) ([]byte, int, error)) (rdma.Invitation, error) {
	i := &invitation{s: p.s, answer: answer}
	p.s.mu.Lock()
	p.s.invited = i
	p.s.mu.Unlock()
	return i, nil
}

func (p *stepPlace) Close() error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.places--
	return nil
}

type invitation struct {
	s         *stepper
	answer    func([]byte) ([]byte, int, error)
	withdrawn bool
}

var stepAddress = rdma.Address{Token: [16]byte{1, 2, 3}, Port: 7}

func (i *invitation) Address() rdma.Address { return stepAddress }

func (i *invitation) Take(ctx context.Context) (rdma.QueuePair, error) {
	i.s.mu.Lock()
	q, failed := i.s.channel, i.s.failed
	if i.s.late {
		q, i.s.late = nil, false
	}
	i.s.mu.Unlock()
	if failed != nil {
		return nil, failed
	}
	if q == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return q, nil
}

func (i *invitation) Withdraw() {
	i.s.mu.Lock()
	defer i.s.mu.Unlock()
	i.withdrawn = true
}

// fakeVerbs is registered once: a device is for the whole program.
var fakeVerbs = func() *stepper {
	s := new(stepper)
	rdma.RegisterDevice(s)
	return s
}()

// reset has the device be as new.
func (s *stepper) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.refuses, s.none, s.channel, s.failed, s.late, s.invited, s.places = nil, nil, nil, nil, nil, false, nil, 0
}

// approach is a client that offers verbs, up to its decision, and what the server
// has chosen.
func approach(t *testing.T, l addressed, change func(o *wire.Offers)) (*iwarp.QueuePair, wire.Choice) {
	t.Helper()
	c := dial(t, l, "")
	o := wire.Offers{
		Devices: []wire.Device{wire.DeviceIWARP, wire.DeviceVerbs},
		Client:  c.LocalAddr().(*net.TCPAddr).AddrPort(),
		Server:  c.RemoteAddr().(*net.TCPAddr).AddrPort(),
	}
	o.Host, o.HasHost = handshake.HostID()
	if change != nil {
		change(&o)
	}
	qp, private, err := iwarp.Connect(c, iwarp.Config{}, handshaketest.Private(t, o, handshaketest.Hello()))
	require.NoError(t, err)
	t.Cleanup(func() { qp.Abort() })
	qp.ProvideReceive(32, 8192)
	choice, _, err := wire.ParseChoice(private)
	require.NoError(t, err)
	return qp, choice
}

func stepConfig() handshake.Config {
	cfg := testConfig()
	cfg.Devices = []wire.Device{wire.DeviceVerbs, wire.DeviceIWARP}
	return cfg
}

func stepsUp() wire.Message {
	return wire.Message{Header: wire.Header{MID: wire.MIDStepUp, Bufs: 32, MSeq: 1}}
}

func TestStepUp(t *testing.T) {
	fakeVerbs.reset()
	l := listen(t, stepConfig(), 8)
	channel, _ := handshaketest.QueuePairs(t)
	fakeVerbs.channel = channel
	qp, choice := approach(t, l, nil)
	require.Equal(t, wire.Choice{Device: wire.DeviceVerbs, Token: stepAddress.Token, HasToken: true, Port: 7, Stay: true}, choice)
	require.Len(t, fakeVerbs.asked, 1)

	reply, ord, err := fakeVerbs.invited.answer(handshaketest.Hello())
	require.NoError(t, err)
	ack, err := wire.ParseHelloAck(reply)
	require.NoError(t, err)
	assert.EqualValues(t, ack.ORD, ord)
	_, _, err = fakeVerbs.invited.answer([]byte("no Hello"))
	assert.Error(t, err)
	fakeVerbs.invited.answer(handshaketest.Hello())

	handshaketest.Send(t, qp, stepsUp())
	in := l.accept(t)
	assert.Equal(t, "verbs", in.Device)
	assert.Same(t, channel, in.QP)
	assert.Nil(t, in.First)
	assert.EqualValues(t, 64, in.Local.Bufs)
	assert.EqualValues(t, 32, in.Peer.Bufs)
	assert.Empty(t, in.Declined)
	assert.True(t, fakeVerbs.invited.withdrawn)
	qp.Abort()
	n, _ := in.Conn.Read(make([]byte, 1))
	assert.Zero(t, n, "the connection carries nothing")
	in.Conn.Close()
	l.Close()
	assert.Zero(t, fakeVerbs.places)
}

// TestStepUpOfAStoppedServer: a process that was stopped finds its time over before the device has told
// it that the channel is open, as the client knows. The connection uses it.
func TestStepUpOfAStoppedServer(t *testing.T) {
	fakeVerbs.reset()
	l := listen(t, stepConfig(), 8)
	channel, _ := handshaketest.QueuePairs(t)
	fakeVerbs.channel, fakeVerbs.late = channel, true
	qp, _ := approach(t, l, nil)
	handshaketest.Send(t, qp, stepsUp())
	in := l.accept(t)
	assert.Same(t, channel, in.QP)
	in.Conn.Close()
}

func TestClientStaysThoughInvited(t *testing.T) {
	fakeVerbs.reset()
	l := listen(t, stepConfig(), 8)
	qp, choice := approach(t, l, nil)
	require.Equal(t, wire.DeviceVerbs, choice.Device)
	handshaketest.Send(t, qp, handshaketest.Stay())
	in := l.accept(t)
	assert.Equal(t, "iwarp", in.Device)
	assert.NotNil(t, in.First)
	assert.Equal(t, map[string]string{"verbs": "client did not connect"}, in.Declined.Table())
	assert.True(t, fakeVerbs.invited.withdrawn)
}

// TestServerSaysWhyItRejected: if the client stays because this end rejected it on the device's channel,
// this end has the reason.
func TestServerSaysWhyItRejected(t *testing.T) {
	fakeVerbs.reset()
	fakeVerbs.failed = errors.New("no memory")
	l := listen(t, stepConfig(), 8)
	qp, choice := approach(t, l, nil)
	require.Equal(t, wire.DeviceVerbs, choice.Device)
	handshaketest.Send(t, qp, handshaketest.Stay())
	in := l.accept(t)
	assert.Equal(t, map[string]string{"verbs": "no memory"}, in.Declined.Table())
}

func TestNotInvited(t *testing.T) {
	for _, v := range []struct {
		name     string
		server   func(c *handshake.Config)
		client   func(o *wire.Offers)
		device   func()
		declined string
	}{
		{"it does not offer it", nil, func(o *wire.Offers) { o.Devices = o.Devices[:1] }, nil, "not offered by client"},
		{"another client address", nil, func(o *wire.Offers) { o.Client = netip.MustParseAddrPort("192.0.2.1:1") }, nil, "proxy or NAT in between"},
		{"another server port", nil, func(o *wire.Offers) { o.Server = netip.AddrPortFrom(o.Server.Addr(), 1) }, nil, "proxy or NAT in between"},
		{"no tuple", nil, func(o *wire.Offers) { o.Client, o.Server = netip.AddrPort{}, netip.AddrPort{} }, nil, "proxy or NAT in between"},
		{"out of reach", nil, nil, func() { fakeVerbs.refuses = errors.New("too far") }, "too far"},
		{"no place", nil, nil, func() { fakeVerbs.none = errors.New("no room") }, "no room"},
		{"iwarp is better", func(c *handshake.Config) { c.Devices = []wire.Device{wire.DeviceIWARP, wire.DeviceVerbs} }, nil, nil, ""},
	} {
		t.Run(v.name, func(t *testing.T) {
			fakeVerbs.reset()
			if v.device != nil {
				v.device()
			}
			cfg := stepConfig()
			if v.server != nil {
				v.server(&cfg)
			}
			l := listen(t, cfg, 8)
			qp, choice := approach(t, l, v.client)
			assert.Equal(t, wire.Choice{Device: wire.DeviceIWARP}, choice)
			handshaketest.Send(t, qp, handshaketest.Stay())
			in := l.accept(t)
			assert.Equal(t, "iwarp", in.Device)
			assert.Contains(t, in.Declined.Of(wire.DeviceVerbs), v.declined)
			assert.Nil(t, fakeVerbs.invited)
		})
	}
	t.Run("through a proxy, if so configured", func(t *testing.T) {
		fakeVerbs.reset()
		cfg := stepConfig()
		cfg.ThroughProxies = true
		l := listen(t, cfg, 8)
		_, choice := approach(t, l, func(o *wire.Offers) { o.Client = netip.MustParseAddrPort("192.0.2.1:1") })
		assert.Equal(t, wire.DeviceVerbs, choice.Device)
	})
}

// TestDecisionAgainstTheChoice ends the connection.
func TestDecisionAgainstTheChoice(t *testing.T) {
	for _, v := range []struct {
		name     string
		devices  []wire.Device
		offered  []wire.Device
		decision wire.Message
		late     bool // its time ends
	}{
		{"it steps up and was not invited", []wire.Device{wire.DeviceIWARP}, nil, stepsUp(), false},
		{"it steps up and has not come", []wire.Device{wire.DeviceVerbs, wire.DeviceIWARP}, nil, stepsUp(), true},
		{"it stays on what we may not use", []wire.Device{wire.DeviceVerbs}, nil, handshaketest.Stay(), false},
		{"it stays on what it may not use", []wire.Device{wire.DeviceVerbs, wire.DeviceIWARP}, []wire.Device{wire.DeviceVerbs}, handshaketest.Stay(), false},
	} {
		t.Run(v.name, func(t *testing.T) {
			fakeVerbs.reset()
			cfg := stepConfig()
			cfg.Devices = v.devices
			if v.late {
				cfg.StepUpTimeout, cfg.DecisionTimeout = 0, 20*time.Millisecond
			}
			l := listen(t, cfg, 8)
			qp, _ := approach(t, l, func(o *wire.Offers) {
				if v.offered != nil {
					o.Devices = v.offered
				}
			})
			handshaketest.Send(t, qp, v.decision)
			var wcs [1]rdma.Completion
			_, err := qp.Wait(wcs[:])
			assert.Error(t, err, "the server has closed")
		})
	}
}

// TestClientGoesOnAsPlain: a client that was invited and cannot come goes on as plain TCP, and
// the server says so by a rejection that names no device. What follows is the program's.
func TestClientGoesOnAsPlain(t *testing.T) {
	fakeVerbs.reset()
	cfg := stepConfig()
	cfg.Devices = []wire.Device{wire.DeviceVerbs}
	l := listen(t, cfg, 8)
	qp, choice := approach(t, l, nil)
	require.Equal(t, wire.DeviceVerbs, choice.Device)
	require.False(t, choice.Stay)
	handshaketest.Send(t, qp, wire.Message{Header: wire.Header{MID: wire.MIDPlain, Bufs: 32, MSeq: 1}})
	c, err := qp.Detach()
	require.NoError(t, err)
	defer c.Close()
	in := l.accept(t)
	require.Nil(t, in.QP)
	_, err = in.Conn.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, in.Conn.Close())
	all, err := io.ReadAll(c)
	require.NoError(t, err)
	none, err := (&wire.Choice{Device: wire.DeviceNone}).Append(nil)
	require.NoError(t, err)
	assert.Equal(t, "MPA ID Rep Frame", string(all[:min(len(all), mpa.KeyLen)]))
	assert.Equal(t, string(none)+"hello", string(all[max(0, len(all)-len(none)-5):]))
	assert.True(t, fakeVerbs.invited.withdrawn)
}

// TestNothingInCommon is a rejection, though each end has a device.
func TestNothingInCommon(t *testing.T) {
	fakeVerbs.reset()
	fakeVerbs.refuses = errors.New("too far")
	cfg := stepConfig()
	cfg.Devices = []wire.Device{wire.DeviceVerbs}
	l := listen(t, cfg, 8)
	c := dial(t, l, "")
	o := handshaketest.Offers()
	o.Devices = []wire.Device{wire.DeviceVerbs, wire.DeviceIWARP}
	_, _, err := iwarp.Connect(c, iwarp.Config{}, handshaketest.Private(t, o, handshaketest.Hello()))
	var rejected *mpa.RejectError
	require.ErrorAs(t, err, &rejected)
	in := l.accept(t)
	assert.Nil(t, in.QP)
}
