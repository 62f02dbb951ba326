package proxy

import (
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// inheritable returns a socket as systemd would have passed it under the name.
func inheritable(t *testing.T, name string) map[string]*os.File {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f, err := l.(*net.TCPListener).File()
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	require.NoError(t, l.Close())
	return map[string]*os.File{name: f}
}
