// Package drivers shows how database drivers and other libraries that have a
// hook for their dialer come to use SDP, and that nothing else about them
// changes: sdp.Dialer's DialContext goes where net.Dialer's was.
package drivers

import (
	"cmp"
	"context"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/examples/internal/programs"
	"github.com/gosdp/gosdp/sdp"
)

// device is what must carry every connection here: shared memory, unless
// SDP_DEVICES names another one.
var device = cmp.Or(os.Getenv("SDP_DEVICES"), "shm")

// overSDP puts a relay before a server that speaks TCP, and returns the address
// at which it speaks SDP and nothing else.
func overSDP(t *testing.T, server string) (address string) {
	t.Helper()
	address, _ = programs.Relay(t, programs.BuildTool(t, t.TempDir()), "sdp://127.0.0.1:0", "tcp://"+server)
	return address
}

// A dialer is an sdp.Dialer that keeps what it has dialled, for the test to look
// at.
type dialer struct {
	sdp.Dialer

	mu    sync.Mutex
	conns []net.Conn
}

func newDialer() *dialer {
	return &dialer{Dialer: sdp.Dialer{Config: &sdp.Config{Devices: []string{device}}}}
}

func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.Dialer.DialContext(ctx, network, address)
	if err == nil {
		d.mu.Lock()
		d.conns = append(d.conns, c)
		d.mu.Unlock()
	}
	return c, err
}

// dialled returns all connections, and requires that they are RDMA.
func (d *dialer) dialled(t *testing.T) []*sdp.Conn {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	require.NotEmpty(t, d.conns)
	var all []*sdp.Conn
	for _, c := range d.conns {
		require.IsType(t, (*sdp.Conn)(nil), c)
		require.Equal(t, device, c.(*sdp.Conn).Device())
		all = append(all, c.(*sdp.Conn))
	}
	return all
}
