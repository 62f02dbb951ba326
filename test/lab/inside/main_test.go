//go:build linux

package inside

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	_ "github.com/gosdp/gosdp/rdma/verbs"
	"github.com/gosdp/gosdp/sdp"
)

// onVerbs allows only the hardware.
var onVerbs = &sdp.Config{Devices: []string{"verbs"}, StepUpTimeout: 5 * time.Second, HandshakeTimeout: 20 * time.Second}

// address returns the device's address, with port 0.
func address(t testing.TB) string {
	t.Helper()
	at := os.Getenv("VERBS_ADDRESS")
	if at == "" {
		t.Skip("missing: VERBS_ADDRESS, the IP address of an RDMA device; test/lab sets it")
	}
	return net.JoinHostPort(at, "0")
}

// dialled returns both ends of a connection.
func dialled(t testing.TB, cfg *sdp.Config) (client, server *sdp.Conn, err error) {
	ln, err := (&sdp.ListenConfig{Config: cfg}).Listen(context.Background(), "sdp", address(t))
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	c, err := (&sdp.Dialer{Config: cfg}).DialContext(context.Background(), "sdp", ln.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	s, err := ln.Accept()
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return c.(*sdp.Conn), s.(*sdp.Conn), nil
}

// pair acts like dialled, and closes both ends when the test ends.
func pair(t testing.TB, cfg *sdp.Config) (client, server *sdp.Conn) {
	t.Helper()
	client, server, err := dialled(t, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client, server
}
