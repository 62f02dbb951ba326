package sdp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/observe"
	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/internal/rules"
	"github.com/gosdp/gosdp/sdp/stats"
)

// Dial connects to the address on the named network.
//
// On networks "tcp", "tcp4" and "tcp6" it makes the connection that [net.Dial] would have made. If its
// ends are on one host, it is a [*Conn], which moves to shared memory when that pays and the peer can;
// otherwise it is a [*net.TCPConn], unless SDP over RDMA was asked for by name (Config.Devices,
// Config.Probe) and agreed on. On networks "sdp", "sdp4" and "sdp6" it returns a [*Conn] that has
// met its peer, or an error that wraps a [*NotSDPError]. On network "unix" it is net.Dial. Addresses are
// those of net.Dial. Every error is a [*net.OpError]. Dial uses the default [Config].
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

// DialContext connects to the address on the named network, as the function [Dial] does. Once it has
// returned, ctx does not affect the connection.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	e := stats.Dial{Network: network, Address: address}
	hook := dialHook(ctx)
	var start time.Time
	if hook != nil {
		start = time.Now()
	}
	c, err := d.dialContext(ctx, &e)
	e.Err = err
	observe.Dialled(e)
	if hook != nil {
		e.Duration = time.Since(start)
		hook(e)
	}
	return c, err
}

// dialContext is DialContext for the network and the address of e. It fills in what became of the connection.
func (d *Dialer) dialContext(ctx context.Context, e *stats.Dial) (net.Conn, error) {
	n, err := policy.ParseNetwork(e.Network)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: e.Network, Err: err}
	}
	n, known := d.Config.options().Ruled(n, rules.Client, e.Address)
	set, err := d.Config.shared(n)
	if err != nil {
		err = n.OpError("dial", nil, nil, err)
		logDial(n, e, nil, err)
		return nil, err
	}
	if n.Only || !known || len(set.Devices) > 0 { // otherwise the time is NetDialer's alone
		var cancel context.CancelFunc
		ctx, cancel = d.bounded(ctx)
		defer cancel()
	}
	a := attempt{d: d, network: n, address: e.Address, set: set}
	a.client = handshake.Client{Config: &a.set.handshake, Redials: true}
	c, err := a.dial(ctx, known)
	if up, ok := c.(*Conn); err == nil && ok {
		e.Device = up.Device()
	} else if err == nil {
		e.Plain, e.Cause = a.set.plainReason(c, a.failed), a.failed
	}
	logDial(a.network, e, c, err)
	return c, err
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

// NotSDPError is the error for a peer that does not speak SDP, or with no device that this end has.
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

// publicError returns a *NotSDPError in place of the handshake's, or for a peer that was not met.
func publicError(err error) error {
	if met := (*meetError)(nil); errors.As(err, &met) {
		return &NotSDPError{Addr: met.addr, Err: met.err}
	}
	var not *handshake.NotSDPError
	if errors.As(err, &not) {
		return &NotSDPError{Addr: not.Addr, Err: not.Err, text: not.Error()}
	}
	return err
}
