package sdp

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/gosdp/gosdp/internal/adopted"
	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/local"
	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/internal/rules"
)

// attempt is one call of DialContext.
type attempt struct {
	d       *Dialer
	network policy.Network
	address string
	set     *settings
	client  handshake.Client
	failed  error // why SDP did not come up, if that was tried
}

// dial makes a TCP connection, and uses SDP on it if the settings say so. ruled says that they are those of
// the rule for the address; otherwise that depends on the address to which the connection goes.
func (a *attempt) dial(ctx context.Context, ruled bool) (net.Conn, error) {
	conn, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	if !ruled {
		if err := a.decide(conn); err != nil {
			conn.Close()
			return nil, err
		}
	}
	if a.network.Only {
		return a.negotiate(ctx, conn)
	}
	if c := a.set.onHost(conn, true); c != nil {
		return c, nil
	}
	if a.client.Asks(conn) {
		return a.negotiate(ctx, conn)
	}
	a.logUnasked(ctx, conn)
	return conn, nil
}

// connect makes a TCP connection.
func (a *attempt) connect(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	if a.d.NetDialer != nil {
		d = *a.d.NetDialer
	}
	conn, err := d.DialContext(adopted.Plain(ctx), a.network.TCP, a.address)
	if err != nil && local.Relieve(ctx, err) {
		conn, err = d.DialContext(adopted.Plain(ctx), a.network.TCP, a.address)
	}
	if err != nil {
		return nil, a.network.OpError("dial", nil, nil, err)
	}
	return conn, nil
}

// decide applies the rule for the address that a connection goes to. Further ones go there too.
func (a *attempt) decide(conn net.Conn) error {
	a.network = a.d.Config.options().RuledAt(a.network, rules.Client, conn.RemoteAddr())
	set, err := a.d.Config.shared(a.network)
	if err != nil {
		return a.network.OpError("dial", conn.LocalAddr(), conn.RemoteAddr(), err)
	}
	a.set, a.client.Config = set, &set.handshake
	a.address = conn.RemoteAddr().String()
	return nil
}

// negotiate brings SDP about with the server at the other end of conn. On network tcp it fails only where
// net.Dial does.
func (a *attempt) negotiate(ctx context.Context, conn net.Conn) (net.Conn, error) {
	try := a.set.offer
	if a.network.Only {
		try = a.set.client
	}
	for {
		up, err := try(ctx, &a.client, conn)
		if err == nil {
			return up, nil
		}
		next := a.client.Next(ctx, err)
		if next == handshake.Keep {
			a.logPlain(err)
			return conn, nil
		}
		handshake.Abort(conn)
		switch {
		case next == handshake.Fail:
			return nil, a.network.OpError("dial", conn.LocalAddr(), conn.RemoteAddr(), contextError(ctx, a.publicError(err)))
		case next == handshake.Redial && ctx.Err() == nil:
			a.client.Remember(conn, err)
			a.logPlain(err)
		}
		if conn, err = a.connect(ctx); err != nil || next == handshake.Redial {
			return conn, err
		}
	}
}

// publicError returns the error that the program gets for one of the handshake.
func (a *attempt) publicError(err error) error {
	err = publicError(err)
	if _, ok := err.(*NotSDPError); ok {
		return a.network.Demanded(err)
	}
	return err
}

// logPlain notes why the connection is plain, and tells the logger.
func (a *attempt) logPlain(err error) {
	a.failed = err
	reason := err.Error()
	var not *handshake.NotSDPError
	if errors.As(err, &not) {
		reason = not.Reason()
	}
	a.set.handshake.Logger.Debug("sdp: dial: no SDP with peer, using plain TCP", "network", a.network.Name, "address", a.address, "reason", reason)
}

// logUnasked tells the logger that the connection is plain and that no Request was sent.
func (a *attempt) logUnasked(ctx context.Context, conn net.Conn) {
	if log := a.set.handshake.Logger; log.Enabled(ctx, slog.LevelDebug) {
		log.Debug("sdp: dial: using plain TCP", "network", a.network.Name, "address", a.address, "plain", a.set.plainReason(conn, nil).String())
	}
}
