package sdp

import (
	"context"
	"net"
	"slices"

	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/wire"
)

// settings are what a Config, the environment and this machine amount to for one Dial or one
// listener.
type settings struct {
	handshake.Config
	tuning
	network networkID
}

// settings returns those for a network. asked says that the program asks for SDP, which
// allows every device unless the program or the environment lists some.
func (c *Config) settings(n network, asked bool) (settings, error) {
	dev, err := c.devices(asked)
	c.noteRules()
	if n.plain {
		dev.usable = nil
	}
	if err == nil && n.only && len(dev.usable) == 0 {
		err = n.demanded(dev.declined.Err())
	}
	if err != nil {
		return settings{}, err
	}
	cfg := c.filled()
	hello := ourHello(cfg.ReadBuffer)
	hello.Bufs = recvBuffers // for the device
	return settings{handshake.Config{
		SDPOnly:          n.only,
		Devices:          dev.usable,
		Declined:         slices.Clip(dev.declined),
		Worth:            dev.worthAt,
		MayAsk:           dev.mayAsk,
		ReplyTimeout:     cfg.ReplyTimeout,
		PlainTTL:         cfg.PlainTTL,
		HandshakeTimeout: cfg.HandshakeTimeout,
		StepUpTimeout:    cfg.StepUpTimeout,
		ThroughProxies:   cfg.StepUpThroughProxies,
		UIDs:             cfg.PeerUIDs,
		Dir:              dev.dir,
		DirErr:           dev.unmet,
		Services:         dev.services,
		CRC:              cfg.CRC,
		Logger:           cfg.Logger,
		Hello:            hello,
		Promise:          func() wire.Hello { return reserve(cfg.ReadBuffer) },
		Withdraw:         unreserve,
	}, dev.tuning, n.id()}, nil
}

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
	if up.QP == nil {
		return up.Conn, nil
	}
	return s.newConn(up, false)
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
