package adopt

import (
	"context"
	"crypto/tls"
	"net"
	"strings"

	"github.com/gosdp/gosdp/sdp"
)

// DialTLS connects to a server and makes the TLS handshake. Use it in place of [tls.Dial],
// [tls.DialWithDialer] and the methods of [tls.Dialer]. As there, the dialler's time limits cover the handshake,
// and config.ServerName is by default the host in the address.
func DialTLS(ctx context.Context, dialer *sdp.Dialer, network, address string, config *tls.Config) (net.Conn, error) {
	if d := dialer.NetDialer; d != nil {
		if d.Timeout != 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, d.Timeout)
			defer cancel()
		}
		if !d.Deadline.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, d.Deadline)
			defer cancel()
		}
	}
	below, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if config == nil {
		config = new(tls.Config)
	}
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName = address
		if i := strings.LastIndex(address, ":"); i >= 0 {
			config.ServerName = address[:i]
		}
	}
	conn := tls.Client(below, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		below.Close()
		return nil, err
	}
	return conn, nil
}
