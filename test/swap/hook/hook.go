//go:build sdpswap

package hook

import (
	"context"
	"net"
	"os"

	"github.com/gosdp/gosdp/sdp"
)

func init() {
	net.SwapDial = dial
	net.SwapListen = listen
}

// off reports whether SDP is switched off. It reads the variable at every call instead of in
// init, so that go test knows that its cached result depends on it.
func off() bool { return os.Getenv("SDP_DEVICES") == "tcp" }

func dial(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
	ctx = net.SwapPlain(ctx) // the library calls the same method
	if off() {
		return d.DialContext(ctx, network, address)
	}
	c, err := (&sdp.Dialer{NetDialer: d}).DialContext(ctx, network, address)
	if err == nil {
		report("dial", c)
	}
	return c, err
}

func listen(ctx context.Context, lc *net.ListenConfig, network, address string) (net.Listener, error) {
	ctx = net.SwapPlain(ctx)
	if off() {
		return lc.Listen(ctx, network, address)
	}
	ln, err := (&sdp.ListenConfig{Net: *lc}).Listen(ctx, network, address)
	if err != nil || os.Getenv(reportVariable) == "" {
		return ln, err
	}
	return reporting{ln.(*sdp.Listener)}, nil
}
