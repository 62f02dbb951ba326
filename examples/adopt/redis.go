package adopt

import (
	"cmp"
	"context"
	"net"
	"time"

	"github.com/gosdp/gosdp/sdp"
	"github.com/redis/go-redis/v9"
)

// Redis sets the dialler of a go-redis client. That library leaves TLS to the dialler: one that ignores
// TLSConfig sends the password in clear.
func Redis(options *redis.Options) {
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialer := &sdp.Dialer{NetDialer: &net.Dialer{
			Timeout: cmp.Or(options.DialTimeout, redisDialTimeout),
			KeepAliveConfig: net.KeepAliveConfig{
				Enable:   true,
				Idle:     30 * time.Second,
				Interval: 5 * time.Second,
				Count:    3,
			},
		}}
		if options.TLSConfig != nil {
			return DialTLS(ctx, dialer, network, address, options.TLSConfig)
		}
		return dialer.DialContext(ctx, network, address)
	}
}

const redisDialTimeout = 5 * time.Second // the library's default
