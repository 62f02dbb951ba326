package sdp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/engine"
	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/local"
	"github.com/gosdp/gosdp/internal/netname"
	"github.com/gosdp/gosdp/internal/observe"
	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/sdp/stats"
	"github.com/gosdp/gosdp/wire"
)

// settings are what the connections of one Dial or one Listen need: its policy, and what the handshake and
// shared memory make of that.
type settings struct {
	*policy.Policy
	handshake handshake.Config // of SDP over RDMA
	moves     local.Moves
	shm       bool // shared memory may be used
	network   netname.ID
}

// standards are the settings of a nil Config for each network. A Dial makes them again if the environment has
// changed, and each second, because devices may have come or gone: it would take a twentieth of the time of a dial.
var standards [netname.Count]atomic.Pointer[standard]

// epoch is the zero of standard.at.
var epoch = time.Now()

type standard struct {
	settings
	environment policy.Environment
	at          time.Duration
}

// shared is settings for a Dial or a Listen, for which n says whether the program asks for SDP. The result must not be
// changed.
func (c *Config) shared(n policy.Network) (*settings, error) {
	if c != nil || n.Rule != nil || bubble.Inside() {
		set, err := c.settings(n, n.Only)
		return &set, err
	}
	now, slot := standard{environment: policy.ReadEnvironment(), at: time.Since(epoch)}, &standards[n.ID()]
	if last := slot.Load(); last != nil && last.environment == now.environment && now.at-last.at < time.Second {
		return &last.settings, nil
	}
	var err error
	if now.settings, err = c.settings(n, n.Only); err == nil {
		slot.Store(&now)
	}
	return &now.settings, err
}

// settings returns those for a network. asked says that the program asks for SDP, which
// allows every device unless the program or the environment lists some.
func (c *Config) settings(n policy.Network, asked bool) (settings, error) {
	p, err := policy.New(c.options(), n, asked)
	if err != nil {
		return settings{}, err
	}
	observe.ServeIfAsked(p.Logger)
	observe.DumpIfAsked(p.Logger)
	if err := p.Err(); err != nil {
		return settings{}, err
	}
	log := p.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	hello := engine.OurHello(p.ReadBuffer)
	hello.Bufs = engine.RecvBuffers // for the device
	set := settings{
		Policy: p,
		handshake: handshake.Config{
			SDPOnly:          n.Only,
			Devices:          p.Devices,
			Declined:         p.Declined,
			Worth:            p.Worth,
			MayAsk:           p.MayAsk,
			ReplyTimeout:     p.ReplyTimeout,
			PlainTTL:         p.PlainTTL,
			HandshakeTimeout: p.HandshakeTimeout,
			StepUpTimeout:    p.StepUpTimeout,
			ThroughProxies:   p.ThroughProxies,
			CRC:              p.CRC,
			Logger:           log,
			Hello:            hello,
			Promise:          func() (wire.Hello, error) { return engine.Reserve(p.ReadBuffer) },
			Withdraw:         engine.Unreserve,
		},
		moves:   local.MovesFor(p),
		shm:     p.SHM,
		network: n.ID(),
	}
	if p.SHM && (n.Only || p.Asks()) { // a client that waits to be met sends nothing
		met := set // of the connections that were met
		set.handshake.Meet = met.meeting
	}
	return set, nil
}

// A meetError says why a peer was not met in shared memory.
type meetError struct {
	addr net.Addr
	err  error
}

func (e *meetError) Error() string { return e.err.Error() }
func (e *meetError) Unwrap() error { return e.err }

// client brings SDP about with the server at the other end of conn, which remains the caller's if there is
// an error: in shared memory if that is on this host, and otherwise, or if other devices were named, with a Request. If
// containers share a directory, the addresses do not tell which of these it is.
func (s *settings) client(ctx context.Context, client *handshake.Client, conn net.Conn) (*Conn, error) {
	asks := len(s.Devices) > 0 && (s.Listed || !local.OneHost(conn))
	limit := s.ReplyTimeout
	if asks {
		limit = s.MeetTimeout
		if end, ok := ctx.Deadline(); ok {
			limit = min(limit, time.Until(end)/2)
		}
	}
	met, err := s.meet(ctx, conn, limit)
	switch {
	case met != nil:
		return met, nil
	case err != nil && (!asks || ctx.Err() != nil):
		return nil, &meetError{conn.RemoteAddr(), err}
	case len(s.Devices) == 0:
		return nil, &meetError{conn.RemoteAddr(), errNotLocal}
	}
	return s.offer(ctx, client, conn)
}

var errNotLocal = errors.New("no shared memory between these addresses, and no other device can be used")

// offer offers SDP to the server at the other end of conn, which remains the caller's if
// there is an error.
func (s *settings) offer(ctx context.Context, client *handshake.Client, conn net.Conn) (*Conn, error) {
	up, err := client.Connect(ctx, conn)
	if err != nil {
		return nil, err
	}
	return s.newConn(up, true)
}

// conn returns what a program gets of an accepted connection.
func (s *settings) conn(up *handshake.Connection) (net.Conn, error) {
	if up.QP != nil {
		return s.newConn(up, false)
	}
	if !up.Met {
		if c := s.onHost(up.Conn, false); c != nil {
			return c, nil
		}
		s.countPlain(up)
	}
	return up.Conn, nil
}

// countPlain counts an accepted connection that is not of this library.
func (s *settings) countPlain(up *handshake.Connection) {
	reason := s.plainReason(up.Conn, nil)
	if up.Refused {
		reason = stats.PlainSetupFailed
	}
	observe.PlainAccepted(reason)
}

// newConn makes the Conn. It has charged its own buffers to the budget when it returns, so
// the promise of the handshake is withdrawn.
func (s *settings) newConn(up *handshake.Connection, dialled bool) (*Conn, error) {
	defer engine.Unreserve(up.Promised)
	c, err := engine.New(up.Conn, up.QP, engine.Setup{
		Network:  s.network,
		Device:   up.Device,
		Dialled:  dialled,
		Decided:  !up.MustDecide && up.First == nil,
		Declined: up.Declined,
		Local:    up.Local,
		Peer:     up.Peer,
		First:    up.First,
		Tuning: engine.Tuning{
			Threshold: s.ZCopyThreshold,
			BusyPoll:  s.BusyPoll,
			Window:    s.ReadBuffer,
			Logger:    s.Logger,
		},
	})
	if err != nil {
		return nil, err
	}
	return publish(c), nil
}

// plainReason returns why a connection is not of this library. asked is how a handshake ended; nil: there was none.
func (s *settings) plainReason(c net.Conn, asked error) stats.PlainReason {
	var not *handshake.NotSDPError
	switch tcp, ok := c.(*net.TCPConn); {
	case !ok:
		return stats.PlainOther
	case s.Network.Plain:
		return stats.PlainRule
	case s.Off:
		return stats.PlainOff
	case errors.As(asked, &not) && !not.Usable:
		return stats.PlainPeer
	case asked != nil:
		return stats.PlainSetupFailed
	case s.Asks() && s.MayAsk(observe.AddrPort(tcp.LocalAddr()).Addr().Unmap(), observe.AddrPort(tcp.RemoteAddr()).Addr().Unmap()):
		return stats.PlainPeer // a server that has shown it before, or a client that did not ask
	case local.OneHost(tcp):
		return stats.PlainNoDevice
	}
	return stats.PlainHost
}
