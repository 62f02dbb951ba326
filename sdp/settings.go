package sdp

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/netname"
	"github.com/gosdp/gosdp/internal/observe"
	"github.com/gosdp/gosdp/sdp/stats"
	"github.com/gosdp/gosdp/wire"
)

// settings are what a Config, the environment and this machine amount to for one Dial or one
// listener.
type settings struct {
	handshake.Config // of SDP over RDMA
	tuning
	shm      bool          // shared memory may be used
	listed   bool          // the devices were named, one by one
	asks     bool          // clients on network tcp may send a Request
	meetTime time.Duration // how long a meeting may take, after which a Request is sent
	policy   policy
	network  netname.ID
	never    stats.PlainReason // PlainRule or PlainOff: no connection is this library's; 0: some may be
}

// standards are the settings of a nil Config for each network. A Dial makes them again if the environment has
// changed, and each second, because devices may have come or gone: it would take a twentieth of the time of a dial.
var standards [netname.Count]atomic.Pointer[standard]

type standard struct {
	settings
	environment [len(variables)]string
	at          time.Duration
}

// shared is settings for a Dial or a Listen, for which n says whether the program asks for SDP. The result must not be
// changed.
func (c *Config) shared(n network) (*settings, error) {
	if c != nil || n.rule != nil || bubble.Inside() {
		set, err := c.settings(n, n.only)
		return &set, err
	}
	now, slot := standard{environment: environment(), at: clock()}, &standards[n.id()]
	if last := slot.Load(); last != nil && last.environment == now.environment && now.at-last.at < time.Second {
		return &last.settings, nil
	}
	var err error
	if now.settings, err = c.settings(n, n.only); err == nil {
		slot.Store(&now)
	}
	return &now.settings, err
}

// settings returns those for a network. asked says that the program asks for SDP, which
// allows every device unless the program or the environment lists some.
func (c *Config) settings(n network, asked bool) (settings, error) {
	dev, err := c.devices(asked)
	c.noteRules()
	never := stats.PlainReason(0)
	switch {
	case n.plain:
		dev.usable, dev.shm, never = nil, false, stats.PlainRule
	case dev.off:
		never = stats.PlainOff
	}
	if err == nil && n.only && len(dev.usable) == 0 && !dev.shm {
		err = n.demanded(dev.declined.Err())
	}
	if err != nil {
		return settings{}, err
	}
	cfg := c.filled()
	hello := ourHello(cfg.ReadBuffer)
	hello.Bufs = recvBuffers // for the device
	set := settings{
		Config: handshake.Config{
			SDPOnly:          n.only,
			Devices:          dev.usable,
			Declined:         slices.Clip(dev.declined),
			Worth:            dev.worthAt,
			MayAsk:           dev.mayAsk,
			ReplyTimeout:     cfg.ReplyTimeout,
			PlainTTL:         cfg.PlainTTL,
			HandshakeTimeout: dev.handshakeTimeout,
			StepUpTimeout:    cfg.StepUpTimeout,
			ThroughProxies:   cfg.StepUpThroughProxies,
			CRC:              cfg.CRC,
			Logger:           cfg.Logger,
			Hello:            hello,
			Promise:          func() (wire.Hello, error) { return reserve(cfg.ReadBuffer) },
			Withdraw:         unreserve,
		},
		tuning:   dev.tuning,
		shm:      dev.shm,
		listed:   dev.listed,
		meetTime: cfg.ReplyTimeout,
		asks:     len(dev.usable) > 0 && len(dev.probe) > 0,
		policy:   policyFor(dev.dir, dev.uids),
		network:  n.id(),
		never:    never,
	}
	if n.only && (c == nil || c.ReplyTimeout == 0) {
		set.ReplyTimeout = demandTime
	}
	if set.shm && (n.only || set.asks) { // a client that waits to be met sends nothing
		met := set // of the connections that were met
		set.Meet = met.meeting
	}
	return set, nil
}

// demandTime is how long a Dial that demands SDP and has no deadline waits for a peer that says nothing: about as long as
// the kernel waits for an answer to connect.
const demandTime = 2 * time.Minute

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
	asks := len(s.Devices) > 0 && (s.listed || !sameHost(conn))
	limit := s.ReplyTimeout
	if asks {
		limit = s.meetTime
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

// sameHost reports whether the addresses of a TCP connection say that its ends are on one host, in one network namespace.
func sameHost(conn net.Conn) bool {
	here, ok1 := conn.LocalAddr().(*net.TCPAddr)
	there, ok2 := conn.RemoteAddr().(*net.TCPAddr)
	return ok1 && ok2 && (here.IP.Equal(there.IP) || here.IP.IsLoopback() && there.IP.IsLoopback())
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
	observe.PlainAccepts.Add(reason)
}

// newConn makes the Conn. It has charged its own buffers to the budget when it returns, so
// the promise of the handshake is withdrawn.
func (s *settings) newConn(up *handshake.Connection, dialled bool) (*Conn, error) {
	defer unreserve(up.Promised)
	return newConn(up.Conn, up.QP, setup{
		network:  s.network,
		device:   up.Device,
		dialled:  dialled,
		decided:  !up.MustDecide && up.First == nil,
		declined: up.Declined,
		local:    up.Local,
		peer:     up.Peer,
		first:    up.First,
		tuning:   s.tuning,
	})
}
