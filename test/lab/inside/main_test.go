//go:build linux

package inside

import (
	"context"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	_ "github.com/gosdp/gosdp/rdma/verbs"
	"github.com/gosdp/gosdp/sdp"
)

// everyone may be asked for SDP on network tcp.
var everyone = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// onVerbs allows only the hardware.
var onVerbs = &sdp.Config{Devices: []string{"verbs"}, Probe: everyone, StepUpTimeout: 5 * time.Second, HandshakeTimeout: 20 * time.Second}

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
	accepted := make(chan net.Conn, 1)
	go func() { // SDP is agreed on while the program waits in Accept
		s, _ := ln.Accept()
		accepted <- s
	}()
	c, err := (&sdp.Dialer{Config: cfg}).DialContext(context.Background(), "sdp", ln.Addr().String())
	if err != nil {
		ln.Close()
		<-accepted
		return nil, nil, err
	}
	s := <-accepted
	ln.Close()
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
