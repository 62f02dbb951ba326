package sdp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/gosdp/gosdp/internal/adopted"
	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/localpeer"
	"github.com/gosdp/gosdp/internal/rules"
)

// Dial connects to the address on the named network.
//
// On networks "tcp", "tcp4", "tcp6" and "unix" it returns a [*Conn] if the peer speaks SDP, and
// otherwise the [*net.TCPConn] or [*net.UnixConn] that [net.Dial] would have returned. On
// networks "sdp", "sdp4" and "sdp6" it returns a [*Conn], or an error that wraps a
// [*NotSDPError] if the peer does not speak SDP. Addresses are those of net.Dial. Every error is
// a [*net.OpError]. Dial uses the default [Config].
func Dial(network, address string) (net.Conn, error) {
	return new(Dialer).Dial(network, address)
}

// DialTimeout acts like [Dial] but takes a timeout, which covers the whole call.
func DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	return (&Dialer{NetDialer: &net.Dialer{Timeout: timeout}}).Dial(network, address)
}

// Dialer contains options for connecting to an address. Its methods are safe for concurrent
// use as long as its fields do not change.
type Dialer struct {
	// NetDialer makes the TCP connections. Its Timeout and Deadline limit the
	// whole call. Nil means the zero Dialer.
	NetDialer *net.Dialer
	// Config has the options of SDP. Nil means the defaults.
	Config *Config
}

// Dial connects to the address on the named network, as the function [Dial] does.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// dialContext is DialContext. why is how a handshake ended if the connection is plain TCP nevertheless.
func (d *Dialer) dialContext(ctx context.Context, network, address string) (c net.Conn, why, err error) {
	n, err := parseNetwork(network)
	if err != nil {
		return nil, nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	rule, known := d.Config.rule(n, rules.Client, address)
	n = n.ruled(rule)
	set, err := d.Config.settings(n, n.only)
	if err != nil {
		err = n.opError("dial", nil, nil, err)
		n.logDial(address, nil, err)
		return nil, nil, err
	}
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	a := attempt{d: d, network: n, address: address, set: &set, client: handshake.Client{Config: &set.Config, Redials: true}}
	defer a.client.EndClaims()
	if !known {
		err = a.decide(ctx)
	}
	if err == nil {
		c, err = a.dial(ctx)
	}
	a.network.logDial(address, c, err)
	return c, a.failed, err
}

// bounded returns ctx limited to the time of NetDialer. Otherwise NetDialer would allow each
// of the TCP connections that long.
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

// cancelled returns ctx, which is also done when NetDialer's deprecated Cancel is closed.
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
	d       *Dialer
	network network
	address string
	set     *settings
	client  handshake.Client

	undecided bool     // the rule depends on the address to which connect connects
	connected net.Conn // the next connection that connect returns; nil: it makes one
	failed    error    // why SDP did not come up, if that was tried
}

// dial connects with or without SDP.
func (a *attempt) dial(ctx context.Context) (net.Conn, error) {
	switch {
	case len(a.set.Devices) == 0:
		return a.plain(ctx)
	case a.network.only:
		return a.sdp(ctx)
	case a.network.tcp == "unix":
		return a.eitherUnix(ctx)
	}
	return a.either(ctx)
}

// plain connects without SDP.
func (a *attempt) plain(ctx context.Context) (net.Conn, error) {
	conn, err := a.connect(ctx, false)
	if err == nil {
		a.logUnasked(ctx, conn)
	}
	return conn, err
}

// decide connects to a host whose addresses may have different rules, and applies the rule for the
// address that the connection goes to. a continues with this connection.
func (a *attempt) decide(ctx context.Context) error {
	a.undecided = true
	conn, err := a.connect(ctx, true)
	if err != nil && ctx.Err() == nil && errors.Is(err, syscall.ECONNRESET) {
		conn, err = a.connect(ctx, false) // a listener of SDP that is full resets marked connections
	}
	a.undecided = false
	if err != nil {
		return err
	}
	a.network = a.network.ruled(a.d.Config.ruleAt(a.network, rules.Client, conn.RemoteAddr()))
	set, err := a.d.Config.settings(a.network, a.network.only)
	if err != nil {
		conn.Close()
		return a.network.opError("dial", conn.LocalAddr(), conn.RemoteAddr(), err)
	}
	a.set, a.client.Config = &set, &set.Config
	a.address, a.connected = conn.RemoteAddr().String(), conn
	if len(set.Devices) == 0 {
		a.client.Forgo(conn)
	}
	return nil
}

// connect makes a TCP connection. A mark, or a claim, shows a listener on this host that a
// Request will come.
func (a *attempt) connect(ctx context.Context, marked bool) (net.Conn, error) {
	if c := a.connected; c != nil {
		a.connected = nil
		return c, nil
	}
	d := a.netDialer()
	if marked {
		mark(&d, a.network, a.plainAt())
		a.client.Claim(&d)
	}
	conn, err := d.DialContext(adopted.Plain(ctx), a.network.tcp, a.address)
	if err != nil {
		return nil, a.network.opError("dial", nil, nil, err)
	}
	return conn, nil
}

func (a *attempt) netDialer() net.Dialer {
	if a.d.NetDialer == nil {
		return net.Dialer{}
	}
	return *a.d.NetDialer
}

// mark makes d mark its TCP sockets, before the program's own hook sees them. If a socket
// cannot be marked, such as one of multipath TCP, the connection is plain TCP: nothing is
// then sent to a listener on network tcp. Sockets for an address that is plainAt are not marked;
// nil: there is none.
func mark(d *net.Dialer, n network, plainAt func(address string) bool) {
	if n.tcp == "unix" || !localpeer.Sighted() {
		return
	}
	control, before := d.ControlContext, d.Control
	d.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
		if plainAt == nil || !plainAt(address) {
			localpeer.Mark(c, localpeer.Dialler)
		}
		switch {
		case control != nil:
			return control(ctx, network, address, c)
		case before != nil:
			return before(network, address, c)
		}
		return nil
	}
}

// plainAt returns a function that reports whether a rule makes connections to an address plain TCP;
// nil if connect goes on with a rule, or without one.
func (a *attempt) plainAt() func(address string) bool {
	if !a.undecided {
		return nil
	}
	config, n := a.d.Config, a.network
	return func(address string) bool {
		rule, _ := config.rule(n, rules.Client, address)
		return rule != nil && rule.Use == rules.TCP
	}
}

// offer offers SDP to the server at the other end of conn, which remains the caller's if
// there is an error.
func (a *attempt) offer(ctx context.Context, conn net.Conn) (*Conn, error) {
	return a.set.offer(ctx, &a.client, conn)
}

// maxRequests is how many connections are offered SDP by a Dial whose server is silent or
// resets the connection.
const maxRequests = 3

// sdp connects to a server that must speak SDP. One that is silent or resets the connection
// is probably busy, and is asked again.
func (a *attempt) sdp(ctx context.Context) (net.Conn, error) {
	for asked := 1; ; asked++ {
		conn, err := a.connect(ctx, true)
		if err != nil {
			if asked < maxRequests && ctx.Err() == nil && errors.Is(err, syscall.ECONNRESET) {
				continue
			}
			return nil, err
		}
		up, err := a.offer(ctx, conn)
		if err == nil {
			return up, nil
		}
		handshake.Abort(conn)
		if a.client.Retry() {
			asked--
			continue
		}
		if asked == maxRequests || ctx.Err() != nil || !handshake.MaySucceedLater(err) {
			return nil, a.network.opError("dial", conn.LocalAddr(), conn.RemoteAddr(), contextError(ctx, a.publicError(err)))
		}
	}
}

// publicError returns the error that the program gets for one of the handshake.
func (a *attempt) publicError(err error) error {
	err = publicError(err)
	if _, ok := err.(*NotSDPError); ok {
		return a.network.demanded(err)
	}
	return err
}

// either connects to a server that may speak SDP or not. It fails only where net.Dial does:
// if SDP does not come up on a connection, it makes another one for plain TCP.
func (a *attempt) either(ctx context.Context) (net.Conn, error) {
	for asked, ask := 0, true; ; {
		conn, err := a.connect(ctx, ask)
		if err != nil {
			// A listener of SDP that is full resets marked connections, perhaps before
			// connect has returned.
			if ask && ctx.Err() == nil && errors.Is(err, syscall.ECONNRESET) {
				asked++
				ask = asked < 2
				continue
			}
			return nil, err
		}
		prospect := handshake.Plain
		if ask {
			prospect = a.client.Expect(conn)
		}
		switch prospect {
		case handshake.Plain:
			a.logUnasked(ctx, conn)
			return conn, nil
		case handshake.Gone: // this end was silent for too long
			asked++
			ask = asked < 2
			handshake.Abort(conn)
			continue
		}
		up, err := a.offer(ctx, conn)
		if err == nil {
			return up, nil
		}
		if a.client.Retry() {
			handshake.Abort(conn)
			continue
		}
		asked++
		if usable(err) {
			a.logPlain(err)
			return conn, nil
		}
		handshake.Abort(conn)
		if ctx.Err() != nil {
			return a.connect(ctx, false) // which fails as net.Dial does
		}
		if prospect == handshake.Unknown || prospect == handshake.Announced {
			a.client.Remember(conn, err)
		}
		if ask = prospect == handshake.Recognised && asked < 2 && handshake.WasReset(err); !ask {
			a.logPlain(err)
		}
	}
}

// eitherUnix is either for a Unix socket. Whether its listener speaks SDP is known before
// connecting: its process announces that.
func (a *attempt) eitherUnix(ctx context.Context) (net.Conn, error) {
	d := a.netDialer()
	announcer := 0
	if d.LocalAddr == nil {
		announcer = localpeer.UnixAnnouncer(&net.UnixAddr{Net: "unix", Name: a.address})
	}
	if announcer == 0 {
		return a.plain(ctx)
	}
	d.LocalAddr = localpeer.UnixDialler()
	for {
		conn, err := d.DialContext(ctx, a.network.tcp, a.address)
		if err != nil {
			return a.connect(ctx, false)
		}
		if u, ok := conn.(*net.UnixConn); !ok || localpeer.UnixServer(u) != announcer {
			conn.Close() // another process may not announce what this server speaks
			return a.connect(ctx, false)
		}
		up, err := a.offer(ctx, conn)
		if err == nil {
			return up, nil
		}
		if a.client.Retry() {
			conn.Close()
			continue
		}
		a.logPlain(err)
		if usable(err) {
			return conn, nil
		}
		conn.Close()
		return a.connect(ctx, false)
	}
}

// usable reports whether the connection on which SDP failed goes on as plain TCP.
func usable(err error) bool {
	var not *handshake.NotSDPError
	return errors.As(err, &not) && not.Usable
}

// logPlain notes why the connection is plain, and tells the logger.
func (a *attempt) logPlain(err error) {
	a.failed = err
	reason := err.Error()
	var not *handshake.NotSDPError
	if errors.As(err, &not) {
		reason = not.Reason()
	}
	a.set.Logger.Debug("sdp: dial: no SDP with peer, using plain TCP", "address", a.address, "reason", reason)
}

// logUnasked tells the logger that the connection is plain and that no Request was sent.
func (a *attempt) logUnasked(ctx context.Context, conn net.Conn) {
	if log := a.set.Logger; log.Enabled(ctx, slog.LevelDebug) {
		log.Debug("sdp: dial: using plain TCP", "address", a.address, "plain", a.d.Config.plainReason(a.network.name, conn, nil).String())
	}
}

// NotSDPError is the error for a peer that does not speak SDP, or not with a device that this end
// has too.
type NotSDPError struct {
	Addr net.Addr // the peer's address
	Err  error    // what the peer did instead of agreeing on a device

	text string // of the handshake's error; "": the program has made this one
}

// Error returns `peer at 127.0.0.1:80 does not speak SDP: answered "HTTP/1.1 400 Bad"`, or `no
// SDP with peer at 127.0.0.1:80: no device in common`.
func (e *NotSDPError) Error() string {
	if e.text != "" {
		return e.text
	}
	return fmt.Sprintf("peer at %v does not speak SDP: %v", e.Addr, e.Err)
}

// Unwrap returns e.Err.
func (e *NotSDPError) Unwrap() error { return e.Err }

// publicError returns a *NotSDPError in place of the handshake's.
func publicError(err error) error {
	var not *handshake.NotSDPError
	if errors.As(err, &not) {
		return &NotSDPError{Addr: not.Addr, Err: not.Err, text: not.Error()}
	}
	return err
}
