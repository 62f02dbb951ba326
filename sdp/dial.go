package sdp

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/localpeer"
	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/wire"
)

// Dial connects to the address. On the networks "tcp", "tcp4", "tcp6" and "unix"
// the connection is a [*Conn] if the peer speaks SDP, and the [*net.TCPConn] or
// [*net.UnixConn] that net.Dial would have returned if not; on "sdp", "sdp4" and
// "sdp6" it is a [*Conn] or an error. Addresses are those of net.Dial, and so are errors:
// always a [*net.OpError], around a [*NotSDPError] if SDP was a must and the
// peer lacks it. It uses the default [Config].
func Dial(network, address string) (net.Conn, error) {
	return new(Dialer).Dial(network, address)
}

// DialTimeout is Dial that takes at most so long, everything included.
func DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	return (&Dialer{NetDialer: &net.Dialer{Timeout: timeout}}).Dial(network, address)
}

// Dialer dials with a configuration, as tls.Dialer does. Its methods are safe
// for concurrent use while nobody changes its fields.
type Dialer struct {
	// NetDialer makes the TCP connections. Its Timeout and Deadline bound the
	// whole call. nil means the zero Dialer.
	NetDialer *net.Dialer
	// Config is for what comes after; nil means the defaults.
	Config *Config
}

// Dial is DialContext without a context.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to the address, as Dial does. ctx bounds the call and
// not the connection.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	n, err := parseNetwork(network)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	dev, err := d.Config.devices(n.only)
	if err != nil {
		return nil, n.opError("dial", nil, nil, err)
	}
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	a := attempt{d: d, network: n, address: address, cfg: d.Config.filled(), devices: dev}
	defer a.endClaims()
	switch {
	case len(dev.usable) == 0 && n.only:
		return nil, n.opError("dial", nil, nil, dev.why())
	case len(dev.usable) == 0:
		return a.connect(ctx, false)
	case n.only:
		return a.sdp(ctx)
	}
	return a.either(ctx)
}

// bounded returns ctx within the time of NetDialer, which would grant it to
// each of the TCP connections anew.
func (d *Dialer) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if d.NetDialer == nil {
		return ctx, func() {}
	}
	ctx, cancel := d.cancelled(ctx)
	end := d.NetDialer.Deadline
	if t := d.NetDialer.Timeout; t != 0 {
		if after := time.Now().Add(t); end.IsZero() || after.Before(end) {
			end = after
		}
	}
	if end.IsZero() {
		return ctx, cancel
	}
	ctx, stop := context.WithDeadline(ctx, end)
	return ctx, func() { stop(); cancel() }
}

// cancelled returns ctx, done also when NetDialer's deprecated Cancel says so.
func (d *Dialer) cancelled(ctx context.Context) (context.Context, context.CancelFunc) {
	//lint:ignore SA1019 programs that set it expect it to be heard
	told := d.NetDialer.Cancel
	if told == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-told:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// attempt is one call of DialContext.
type attempt struct {
	d       *Dialer // nil: the connection is the program's
	network network
	address string
	cfg     Config
	devices devices

	offered  []wire.Device // to the peer
	declined reasons       // device: why it is not used
	failed   reasons       // device: why its channel did not come up on an earlier connection

	channel   rdma.Offer  // that was offered; nil: none
	channelOf wire.Device // whose it is
	idle      bool        // it has served an earlier connection
	stale     bool        // such a one was offered that the peer has not kept
	again     bool        // another connection is worth trying: see anew

	inDirectory
}

// anew reports that SDP failed on a connection for a reason that another connection does not
// have: that an idle channel was not kept, or, on network sdp, that one device's channel did not
// come up where another device is left.
func (a *attempt) anew() bool {
	again := a.again
	a.again = false
	return again
}

// connect makes a TCP connection. A marked one shows a listener on this host that a
// Request will come.
func (a *attempt) connect(ctx context.Context, marked bool) (net.Conn, error) {
	var d net.Dialer
	if a.d.NetDialer != nil {
		d = *a.d.NetDialer
	}
	if marked {
		mark(&d, a.network)
		a.claim(&d)
	}
	c, err := d.DialContext(ctx, a.network.tcp, a.address)
	if err != nil {
		return nil, a.network.opError("dial", nil, nil, err)
	}
	return c, nil
}

// mark has the sockets of TCP that d makes be marked, before the program's own hook sees
// them. That a socket cannot be marked, as one of multipath TCP, costs it SDP alone:
// a listener on network tcp is not sent anything then.
func mark(d *net.Dialer, n network) {
	if n.tcp == "unix" || !localpeer.Sighted() {
		return
	}
	control, before := d.ControlContext, d.Control
	d.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
		localpeer.Mark(c, localpeer.Dialler)
		switch {
		case control != nil:
			return control(ctx, network, address, c)
		case before != nil:
			return before(network, address, c)
		}
		return nil
	}
}

// mostAsked is how many connections are offered SDP by a Dial that finds the peer silent,
// or whose connection is reset, before it gives up SDP.
const mostAsked = 3

// sdp connects to a peer that must speak SDP. One that is silent, or resets the
// connection, is most likely held up, and asked again.
func (a *attempt) sdp(ctx context.Context) (net.Conn, error) {
	for asked := 1; ; asked++ {
		c, err := a.connect(ctx, true)
		if err != nil {
			if asked < mostAsked && ctx.Err() == nil && errors.Is(err, syscall.ECONNRESET) {
				continue
			}
			return nil, err
		}
		a.confirm(c)
		up, err := a.offer(ctx, c)
		if err == nil {
			a.worked(c)
			return up, nil
		}
		abort(c)
		if a.anew() {
			asked--
			continue
		}
		if asked == mostAsked || ctx.Err() != nil || !heldUp(err) {
			return nil, a.network.opError("dial", c.LocalAddr(), c.RemoteAddr(), contextError(ctx, err))
		}
	}
}

// either connects to a peer that may speak SDP or not. It fails only where net.Dial
// does: a connection on which SDP does not come up is followed by a plain one.
func (a *attempt) either(ctx context.Context) (net.Conn, error) {
	if a.network.tcp == "unix" {
		return a.eitherUnix(ctx)
	}
	for asked, ask := 0, true; ; {
		c, err := a.connect(ctx, ask)
		if err != nil {
			// A listener of SDP that has no place left resets marked connections, perhaps
			// before we are told that they are there.
			if ask && ctx.Err() == nil && errors.Is(err, syscall.ECONNRESET) {
				asked++
				ask = asked < 2
				continue
			}
			return nil, err
		}
		how := plain
		if ask {
			how = a.approach(c)
		}
		switch how {
		case plain:
			return c, nil
		case gone: // we were silent for too long
			asked++
			ask = asked < 2
			abort(c)
			continue
		}
		up, err := a.offer(ctx, c)
		if err == nil {
			a.worked(c)
			return up, nil
		}
		if a.anew() {
			abort(c)
			continue
		}
		asked++
		var not *NotSDPError
		if errors.As(err, &not) && not.usable {
			a.logPlain(err)
			return c, nil
		}
		abort(c)
		if ctx.Err() != nil {
			return a.connect(ctx, false) // which fails as net.Dial does
		}
		if how == probed || how == announced {
			a.remember(c, err)
		}
		if ask = how == recognised && asked < 2 && wasReset(err); !ask {
			a.logPlain(err)
		}
	}
}

// eitherUnix is either for a Unix socket, whose listener is known before one connects: its
// process says that it serves SDP.
func (a *attempt) eitherUnix(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	if a.d.NetDialer != nil {
		d = *a.d.NetDialer
	}
	announcer := 0
	if d.LocalAddr == nil {
		announcer = localpeer.UnixAnnouncer(&net.UnixAddr{Net: "unix", Name: a.address})
	}
	if announcer == 0 {
		return a.connect(ctx, false)
	}
	d.LocalAddr = localpeer.UnixDialler()
	for {
		c, err := d.DialContext(ctx, a.network.tcp, a.address)
		if err != nil {
			return a.connect(ctx, false)
		}
		if u, ok := c.(*net.UnixConn); !ok || localpeer.UnixServer(u) != announcer {
			c.Close() // it is another's to say what is served there
			return a.connect(ctx, false)
		}
		up, err := a.offer(ctx, c)
		if err == nil {
			return up, nil
		}
		if a.anew() {
			c.Close()
			continue
		}
		a.logPlain(err)
		var not *NotSDPError
		if errors.As(err, &not) && not.usable {
			return c, nil
		}
		c.Close()
		return a.connect(ctx, false)
	}
}

// logPlain tells the logger why the connection is plain.
func (a *attempt) logPlain(err error) {
	a.cfg.Logger.Debug("sdp: the peer is plain TCP", "address", a.address, "reason", reasonOf(err))
}

// reasonOf returns what err says, without the peer's address if that is in it.
func reasonOf(err error) string {
	var not *NotSDPError
	if errors.As(err, &not) {
		return not.reason()
	}
	return err.Error()
}

// abort closes c with a reset: nothing that was written on it is worth delivering, and
// its port is free at once.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}
