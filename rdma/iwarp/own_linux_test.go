package iwarp

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOwnProcess: two ends in one process know it, and leave nothing when they are gone.
func TestOwnProcess(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6", "unix"} {
		t.Run(network, func(t *testing.T) {
			at := map[string]string{
				"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0", "unix": filepath.Join(t.TempDir(), "s"),
			}[network]
			ln, err := net.Listen(network, at)
			require.NoError(t, err)
			defer ln.Close()
			c, err := net.Dial(network, ln.Addr().String())
			require.NoError(t, err)
			s, err := ln.Accept()
			require.NoError(t, err)
			before := len(ends.at)
			var both []*rawTransport
			for _, conn := range []net.Conn{c, s} {
				x, err := newTransport(conn)
				require.NoError(t, err)
				both = append(both, x.(*rawTransport))
			}
			for _, x := range both {
				assert.True(t, x.toSelf.Load())
				require.NoError(t, x.close())
			}
			assert.Len(t, ends.at, before)
		})
	}
}
