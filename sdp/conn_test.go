package sdp

import (
	"context"
	"io"
	"net"
	"net/http"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
)

func TestNettest(t *testing.T) {
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		c, s, err := dialled()
		if err != nil {
			return nil, nil, nil, err
		}
		return c, s, func() {
			c.Close()
			s.Close()
		}, nil
	})
}

// TestOneHTTPServerServesEveryKindOfClient on one port.
func TestOneHTTPServerServesEveryKindOfClient(t *testing.T) {
	ln, err := askingListen()
	require.NoError(t, err)
	address := ln.Addr().String()
	body := string(streamAt(0, 300<<10))
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, body) })}
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(ln) })
	defer serving.Wait()
	defer server.Close()

	for _, v := range []struct {
		name string
		dial func(ctx context.Context, network, address string) (net.Conn, error)
	}{
		{"SDP or TCP", (&Dialer{Config: patient}).DialContext},
		{"SDP", func(ctx context.Context, _, address string) (net.Conn, error) {
			return (&Dialer{Config: overEngine(nil)}).DialContext(ctx, "sdp", address)
		}},
		{"plain TCP", new(net.Dialer).DialContext},
	} {
		t.Run(v.name, func(t *testing.T) {
			transport := &http.Transport{DialContext: v.dial}
			defer transport.CloseIdleConnections()
			client := http.Client{Transport: transport, Timeout: soon}
			for range 3 {
				response, err := client.Get("http://" + address)
				require.NoError(t, err)
				got, err := io.ReadAll(response.Body)
				response.Body.Close()
				require.NoError(t, err)
				assert.True(t, body == string(got))
			}
		})
	}
	t.Run("curl", func(t *testing.T) {
		curl, err := exec.LookPath("curl")
		if err != nil {
			t.Skip("missing: curl")
		}
		got, err := exec.Command(curl, "--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "10", "http://"+address).Output()
		require.NoError(t, err)
		assert.True(t, body == string(got))
	})
}
