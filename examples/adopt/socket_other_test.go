//go:build !linux

package adopt

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func socketOptions(*testing.T, net.Addr) string { return "" }

func stallable(t *testing.T) (listener net.Listener, stall func()) {
	t.Skip("missing: Linux, where a server's backlog can be filled")
	return nil, nil
}

func refused(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}
