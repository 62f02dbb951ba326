package iwarp

import (
	"io"
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOwnProcess: two ends in one process notice it, and leave nothing behind when they are gone.
func TestOwnProcess(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6", "unix"} {
		t.Run(network, func(t *testing.T) {
			at := map[string]string{
				"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0", "unix": filepath.Join(t.TempDir(), "s"),
			}[network]
			ln, err := net.Listen(network, at)
			if network == "tcp6" && err != nil {
				t.Skip("missing: IPv6: ", err)
			}
			require.NoError(t, err)
			defer ln.Close()
			before := len(ends.at)
			var clients, servers []*rawTransport
			for range 5 { // all have the same address at the listener's end
				c, err := net.Dial(network, ln.Addr().String())
				require.NoError(t, err)
				s, err := ln.Accept()
				require.NoError(t, err)
				x, err := newTransport(s)
				require.NoError(t, err)
				servers = append(servers, x.(*rawTransport))
				x, err = newTransport(c)
				require.NoError(t, err)
				clients = append(clients, x.(*rawTransport))
			}
			for i := range clients {
				assert.True(t, clients[i].toSelf.Load())
				assert.True(t, servers[i].toSelf.Load())
				require.NoError(t, clients[i].close())
				require.NoError(t, servers[i].close())
			}
			assert.Len(t, ends.at, before)
		})
	}
}

// TestForgotten: a transport in the table is collected nevertheless, and its connection closed.
func TestForgotten(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	func() {
		c, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		_, err = newTransport(c)
		require.NoError(t, err)
	}()
	s, err := ln.Accept()
	require.NoError(t, err)
	defer s.Close()
	require.Eventually(t, func() bool {
		runtime.GC()
		s.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		_, err := s.Read(make([]byte, 1))
		return err == io.EOF
	}, time.Minute, time.Millisecond)
}
