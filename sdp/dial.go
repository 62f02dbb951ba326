package sdp

import (
	"context"
	"errors"
	"net"
	"time"

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
	dev, err := d.Config.devices()
	if err != nil {
		return nil, n.opError("dial", nil, nil, err)
	}
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	a := attempt{d: d, network: n, address: address, cfg: d.Config.filled(), devices: dev}
	switch {
	case len(dev.usable) == 0 && n.only:
		return nil, n.opError("dial", nil, nil, dev.why())
	case len(dev.usable) == 0:
		return a.connect(ctx)
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
	end := d.NetDialer.Deadline
	if t := d.NetDialer.Timeout; t != 0 {
		if after := time.Now().Add(t); end.IsZero() || after.Before(end) {
			end = after
		}
	}
	if end.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, end)
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
	idle     rdma.Idle     // the channel that was offered; nil: none
	idleOf   wire.Device   // whose it is
}

// connect makes a TCP connection.
func (a *attempt) connect(ctx context.Context) (net.Conn, error) {
	d := a.d.NetDialer
	if d == nil {
		d = new(net.Dialer)
	}
	c, err := d.DialContext(ctx, a.network.tcp, a.address)
	if err != nil {
		return nil, a.network.opError("dial", nil, nil, err)
	}
	return c, nil
}

// sdp connects to a peer that must speak SDP.
func (a *attempt) sdp(ctx context.Context) (net.Conn, error) {
	key := peerKey{a.network.tcp, a.address}
	c, up, err := a.reach(ctx, peers.known(key))
	switch {
	case err == nil:
		peers.remember(key, speaksSDP, a.cfg.PlainTTL)
		return up, nil
	case c == nil:
		return nil, err
	}
	peers.forget(key)
	c.Close()
	return nil, a.network.opError("dial", c.LocalAddr(), c.RemoteAddr(), contextError(ctx, err))
}

// either connects to a peer that may speak SDP or not. Which it is one call
// finds out, and others to the same address wait for it to.
func (a *attempt) either(ctx context.Context) (net.Conn, error) {
	key := peerKey{a.network.tcp, a.address}
	known, err := peers.ask(ctx, key)
	switch {
	case err != nil:
		return nil, a.network.opError("dial", nil, nil, err)
	case known == speaksTCP:
		return a.connect(ctx)
	case known == unknown:
		defer peers.asked(key)
	}
	c, up, err := a.reach(ctx, known)
	switch {
	case err == nil:
		peers.remember(key, speaksSDP, a.cfg.PlainTTL)
		return up, nil
	case c == nil:
		return nil, err
	}
	var plain *NotSDPError
	if ctx.Err() != nil || !errors.As(err, &plain) {
		c.Close()
		return nil, a.network.opError("dial", c.LocalAddr(), c.RemoteAddr(), contextError(ctx, err))
	}
	if !plain.usable {
		c.Close()
		if c, err = a.connect(ctx); err != nil {
			return nil, err
		}
	}
	peers.remember(key, speaksTCP, a.cfg.PlainTTL)
	a.cfg.Logger.Debug("sdp: the peer is plain TCP", "address", a.address, "reason", plain.reason())
	return c, nil
}

// reach connects and offers SDP. A peer that is known to speak it and seems not to
// was held up, most likely, for longer than it waits for a Request, or we were: it
// is asked once more, and may take its time once more. c is nil if there is no connection at all; if err is not nil
// otherwise, it is the caller's to go on with or to close.
func (a *attempt) reach(ctx context.Context, known speech) (c net.Conn, up *Conn, err error) {
	for again := known == speaksSDP; ; again = false {
		if c, err = a.connect(ctx); err != nil {
			return nil, nil, err
		}
		up, err = a.offer(ctx, c)
		var plain *NotSDPError
		if !again || ctx.Err() != nil || !errors.As(err, &plain) || plain.usable {
			return c, up, err
		}
		c.Close()
	}
}
