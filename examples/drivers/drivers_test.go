// Package drivers shows that database drivers and other libraries with a configurable
// dialer work over SDP. Only the dialer changes: sdp.Dialer.DialContext replaces
// net.Dialer.DialContext.
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

// device must carry every connection in these tests. It is shared memory unless
// SDP_DEVICES names another device.
var device = cmp.Or(os.Getenv("SDP_DEVICES"), "shm")

// overSDP starts a relay in front of a TCP server, and returns its address. The relay
// accepts only SDP.
func overSDP(t *testing.T, server string) (address string) {
	t.Helper()
	address, _ = programs.Relay(t, programs.BuildTool(t, t.TempDir()), "sdp://127.0.0.1:0", "tcp://"+server)
	return address
}

// A dialer is an sdp.Dialer that records its connections.
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

// dialled returns all connections and requires that they use device.
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
