package adopt

import (
	"context"
	"net"
	"strings"

	"github.com/gosdp/gosdp/sdp"
	"google.golang.org/grpc"
)

// GRPC returns a gRPC client's option. Targets with unix: and unix-abstract: work.
//
// gRPC ignores HTTPS_PROXY if a client has a dialler. Leave the option out for targets behind a proxy.
func GRPC() grpc.DialOption {
	// gRPC uses the system's times between keep-alive probes, and not those of package net.
	dialer := &sdp.Dialer{NetDialer: &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: -1, Interval: -1, Count: -1},
	}}
	return grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		network := "tcp"
		if path, ok := strings.CutPrefix(address, "unix:"); ok {
			network, address = "unix", strings.TrimPrefix(path, "//")
		}
		return dialer.DialContext(ctx, network, address)
	})
}
