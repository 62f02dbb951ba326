package handshake

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/handshake/handshaketest"
)

// TestPlainConnectionIsClosed has the server of a remembered address close a connection. If it
// has not sent a byte before, the address is forgotten.
func TestPlainConnectionIsClosed(t *testing.T) {
	for _, v := range []struct {
		name   string
		server func(t *testing.T, server, client *net.TCPConn)
		forget bool
	}{
		{"at once", func(_ *testing.T, server, _ *net.TCPConn) { server.Close() }, true},
		{"with a reset", func(_ *testing.T, server, _ *net.TCPConn) { Abort(server) }, true},
		{"after a byte that is still unread", func(t *testing.T, server, _ *net.TCPConn) {
			_, err := server.Write([]byte("2"))
			require.NoError(t, err)
			server.Close()
		}, false},
		{"after a byte that was read", func(t *testing.T, server, client *net.TCPConn) {
			_, err := server.Write([]byte("2"))
			require.NoError(t, err)
			_, err = client.Read(make([]byte, 1))
			require.NoError(t, err)
			server.Close()
		}, false},
		{"after the program has ended its direction", func(t *testing.T, server, client *net.TCPConn) {
			require.NoError(t, client.CloseWrite())
			_, err := server.Read(make([]byte, 1))
			require.EqualError(t, err, "EOF")
			server.Close()
		}, false},
		{"after the program has closed it", func(_ *testing.T, _, client *net.TCPConn) { client.Close() }, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			server, client := handshaketest.TCPPair(t)
			a := client.RemoteAddr().(*net.TCPAddr).AddrPort()
			var table peerTable
			table.remember(a, time.Hour)
			table.watch(client)
			table.watch(client) // there is one already
			v.server(t, server, client)
			require.Eventually(t, func() bool {
				table.mu.Lock()
				defer table.mu.Unlock()
				return len(table.watched) == 0
			}, time.Minute, time.Millisecond)
			assert.Equal(t, !v.forget, table.plain(a))
		})
	}
}

// TestClosedAfterAByte: a watch that finds a byte and the end together reports no early end.
func TestClosedAfterAByte(t *testing.T) {
	server, client := handshaketest.TCPPair(t)
	closedEarly, err := awaitFirst(client, time.Hour)
	require.NoError(t, err)
	_, err = server.Write([]byte("2"))
	require.NoError(t, err)
	server.Close()
	rc, err := client.SyscallConn()
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var info *unix.TCPInfo
		rc.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
		return err == nil && info.State == unix.BPF_TCP_CLOSE_WAIT
	}, time.Minute, time.Millisecond)
	assert.False(t, closedEarly())
}

// TestWatchLeavesTheConnectionAlone: the program's deadline holds, and its Close is seen by
// the server at once.
func TestWatchLeavesTheConnectionAlone(t *testing.T) {
	server, client := handshaketest.TCPPair(t)
	closedEarly, err := awaitFirst(client, 100*time.Millisecond)
	require.NoError(t, err)
	require.NoError(t, client.SetReadDeadline(time.Now().Add(time.Millisecond)))
	_, err = client.Read(make([]byte, 1))
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	client.Close()
	server.SetReadDeadline(time.Now().Add(time.Minute))
	_, err = server.Read(make([]byte, 1))
	assert.EqualError(t, err, "EOF")
	assert.False(t, closedEarly())
}

// TestWatchEndsWithTheConnection: after the program's Close nothing is left to wait for.
func TestWatchEndsWithTheConnection(t *testing.T) {
	_, client := handshaketest.TCPPair(t)
	closedEarly, err := awaitFirst(client, time.Hour)
	require.NoError(t, err)
	client.Close()
	assert.False(t, closedEarly())
}

// TestNoWatchInABubble: a bubble's test ends only after all its goroutines have.
func TestNoWatchInABubble(t *testing.T) {
	_, client := handshaketest.TCPPair(t)
	synctest.Test(t, func(t *testing.T) {
		var table peerTable
		table.watch(client)
		assert.Empty(t, table.watched)
	})
}
