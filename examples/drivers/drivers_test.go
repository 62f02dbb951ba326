// Package drivers shows that database drivers and other libraries with a configurable
// dialer work over SDP. Package adopt has the recipes, which also keep TLS and time limits.
package drivers

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/examples/internal/devices"
	"github.com/gosdp/gosdp/examples/internal/programs"
	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/sdp/stats"
)

// overSDP starts a relay in front of a TCP server, and returns its address.
func overSDP(t *testing.T, server string) (address string) {
	t.Helper()
	address, _ = programs.Relay(t, programs.BuildTool(t, t.TempDir()), "auto://127.0.0.1:0", "tcp://"+server)
	return address
}

// A dialer is an sdp.Dialer that records its connections.
type dialer struct {
	sdp.Dialer

	mu    sync.Mutex
	conns []net.Conn
}

func newDialer() *dialer {
	return &dialer{Dialer: sdp.Dialer{Config: &sdp.Config{Devices: []string{"shm"}}}}
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

// dialled returns all connections.
func (d *dialer) dialled(t *testing.T) []*sdp.Conn {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	require.NotEmpty(t, d.conns)
	var all []*sdp.Conn
	for _, c := range d.conns {
		require.IsType(t, (*sdp.Conn)(nil), c)
		all = append(all, c.(*sdp.Conn))
	}
	return all
}

// requireMoved requires that a connection has moved to shared memory.
func (d *dialer) requireMoved(t *testing.T) {
	t.Helper()
	var stats []stats.Conn
	for _, c := range d.dialled(t) {
		if devices.Of(c) == "shm" {
			return
		}
		stats = append(stats, c.Stats())
	}
	require.Fail(t, "no connection has moved to shared memory", "%+v", stats)
}
