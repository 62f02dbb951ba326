package lab_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/test/lab"
)

// testDisconnects ends connections in the middle of a ping, from either end.
func testDisconnects(t *testing.T, m *lab.Machine) {
	ended := func(t *testing.T, err error) {
		t.Helper()
		assert.True(t, err == io.EOF || err == io.ErrUnexpectedEOF || errors.Is(err, syscall.ECONNRESET), "%v", err)
	}
	t.Run("siw is killed as the client", func(t *testing.T) {
		e, _, client := rpingClient(t, m, iwarp.Config{}, 64)
		client.Kill()
		ended(t, e.failure())
	})
	t.Run("siw is killed as the server", func(t *testing.T) {
		e, server := rpingServer(t, m, iwarp.Config{Revision: 2})
		e.send(advert(mustRegister(t, e), 64))
		e.receive()
		server.Kill()
		ended(t, e.failure())
	})
	t.Run("siw's client disconnects", func(t *testing.T) {
		at, accept := listen(t, iwarp.Config{})
		client := m.Start(t, fmt.Sprintf("timeout 60 ucmatose -s %s -p %d -C 0", lab.Host, at))
		e := accept()
		require.NoError(t, e.Close()) // ucmatose answers with a disconnect
		require.Zero(t, client.Wait().Status)
	})
	for _, how := range []struct {
		name string
		end  func(e *end) error
	}{
		{"close", func(e *end) error { return e.Close() }},
		{"abort", func(e *end) error { return e.Abort() }},
	} {
		t.Run("our server/"+how.name, func(t *testing.T) {
			e, _, client := rpingClient(t, m, iwarp.Config{}, 64)
			require.NoError(t, how.end(e))
			require.Contains(t, client.Wait().Output, "DISCONNECT EVENT")
		})
		t.Run("our client/"+how.name, func(t *testing.T) {
			e, server := rpingServer(t, m, iwarp.Config{Revision: 2})
			e.send(advert(mustRegister(t, e), 64))
			e.receive()
			require.NoError(t, how.end(e))
			require.Contains(t, server.Wait().Output, "DISCONNECT EVENT")
		})
	}
	t.Run("our client is killed", func(t *testing.T) {
		server := m.Start(t, rpingScript(fmt.Sprintf("rping -s -q -a %s -p %d", lab.Guest, port)))
		m.Listening(t, port)
		_, at, err := net.SplitHostPort(m.Address(port))
		require.NoError(t, err)
		client := startRping(t, "-c", "-a", "127.0.0.1", "-p", at, "-v")
		require.True(t, strings.HasPrefix(<-client.output.line, "ping data: "))
		require.NoError(t, client.cmd.Process.Kill())
		require.Contains(t, server.Wait().Output, "DISCONNECT EVENT")
	})
	t.Run("nothing is left in siw", func(t *testing.T) {
		m.Siw(t, "siw") // waits until all queue pairs and connections are gone
		assert.NotContains(t, m.Run(t, "rdma resource show qp; rdma resource show cm_id"), "siw0")
		assert.NotRegexp(t, "BUG|WARNING|Oops", m.Run(t, "dmesg"))
	})
}

func mustRegister(t testing.TB, e *end) rdma.Region {
	t.Helper()
	r, err := e.Register(make([]byte, 64), rdma.RemoteRead|rdma.RemoteWrite)
	require.NoError(t, err)
	return r
}
