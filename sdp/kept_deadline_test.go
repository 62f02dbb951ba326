package sdp

import (
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestServerKeepsDeadlines that the program set before, if the client speaks plain TCP: Read ends as
// it does without Server.
func TestServerKeepsDeadlines(t *testing.T) {
	for _, v := range []struct {
		name   string
		config *Config
		wrap   func(net.Conn) net.Conn
	}{
		{"net", nil, func(c net.Conn) net.Conn { return c }},
		{"default", &Config{}, func(c net.Conn) net.Conn { return c }},
		{"iwarp", asking(nil), func(c net.Conn) net.Conn { return c }},
		{"iwarp, wrapped", asking(nil), func(c net.Conn) net.Conn { return bare{c} }},
	} {
		t.Run(v.name, func(t *testing.T) {
			client, c := rawPair(t)
			defer client.Close() // the garbage collector must not do it
			_, err := io.WriteString(client, "0123456789")
			require.NoError(t, err)
			require.NoError(t, c.SetDeadline(time.Now().Add(200*time.Millisecond)))
			server := v.wrap(c)
			if v.config != nil {
				server, err = Server(context.Background(), server, v.config)
				require.NoError(t, err)
			}
			_, err = io.Copy(io.Discard, server)
			assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		})
	}
}
