package proxy_test

import (
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/examples/internal/programs"
	"github.com/gosdp/gosdp/sdp"
)

// patience is what a test waits for something that comes at once, or is broken.
const patience = 20 * time.Second

// tool is the path of the tool sdp, which the first test builds.
var tool struct {
	sync.Once
	dir, path string
}

func TestMain(m *testing.M) {
	status := m.Run()
	os.RemoveAll(tool.dir)
	os.Exit(status)
}

func built(t *testing.T) string {
	t.Helper()
	tool.Do(func() {
		var err error
		tool.dir, err = os.MkdirTemp("", "sdp")
		require.NoError(t, err)
		tool.path = programs.BuildTool(t, tool.dir)
	})
	require.NotEmpty(t, tool.path)
	return tool.path
}

// start starts a relay process.
func start(t *testing.T, listen, dial string, args ...string) (address string, p *programs.Process) {
	t.Helper()
	return programs.Relay(t, built(t), listen, dial, args...)
}

// across starts two relays, as they stand on two hosts: what connects over TCP to
// the address that it returns arrives over TCP at the server, and between them
// is SDP.
func across(t *testing.T, server string) (address string) {
	t.Helper()
	middle, _ := start(t, "sdp://127.0.0.1:0", "tcp://"+server)
	address, _ = start(t, "tcp://127.0.0.1:0", "sdp://"+middle)
	return address
}

// connect dials the address, and accepts at the listener what comes of it.
func connect(t *testing.T, address string, l net.Listener) (client, server *net.TCPConn) {
	t.Helper()
	dialled, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { dialled.Close() })
	require.NoError(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)))
	accepted, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { accepted.Close() })
	for _, c := range []net.Conn{dialled, accepted} {
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	}
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn)
}

// says has one end say something and the other hear it.
func says(t *testing.T, from, to net.Conn, words string) {
	t.Helper()
	_, err := from.Write([]byte(words))
	require.NoError(t, err)
	got := make([]byte, len(words))
	_, err = io.ReadFull(to, got)
	require.NoError(t, err)
	require.Equal(t, words, string(got))
}

func TestHalfClosePassesAlone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	address := across(t, l.Addr().String())
	for _, first := range []string{"client", "server"} {
		t.Run(first, func(t *testing.T) {
			ends, stays := connect(t, address, l)
			if first == "server" {
				ends, stays = stays, ends
			}
			says(t, ends, stays, "the last that I say")
			require.NoError(t, ends.CloseWrite())
			heard, err := io.ReadAll(stays)
			require.NoError(t, err)
			require.Empty(t, heard)

			says(t, stays, ends, "the other direction")
			says(t, stays, ends, "goes on")
			require.NoError(t, stays.Close())
			heard, err = io.ReadAll(ends)
			require.NoError(t, err)
			require.Empty(t, heard)
		})
	}
}

// TestEverythingArrivesBeforeTheEnd closes right after as much as fits nowhere.
func TestEverythingArrivesBeforeTheEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	client, server := connect(t, across(t, l.Addr().String()), l)
	const size = 64 << 20
	go func() {
		io.CopyN(server, zeros{}, size)
		server.Close()
	}()
	n, err := io.Copy(io.Discard, client)
	require.NoError(t, err)
	require.EqualValues(t, size, n)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func TestSDPProgramsNeedOneRelayOnly(t *testing.T) {
	t.Run("client", func(t *testing.T) {
		backend, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer backend.Close()
		address, _ := start(t, "sdp://127.0.0.1:0", "tcp://"+backend.Addr().String())
		client, err := sdp.Dial("sdp", address)
		require.NoError(t, err)
		defer client.Close()
		require.IsType(t, (*sdp.Conn)(nil), client)
		server, err := backend.Accept()
		require.NoError(t, err)
		defer server.Close()
		says(t, client, server, "question")
		says(t, server, client, "answer")
	})
	t.Run("server", func(t *testing.T) {
		backend, err := sdp.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer backend.Close()
		address, _ := start(t, "tcp://127.0.0.1:0", "sdp://"+backend.Addr().String())
		client, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer client.Close()
		server, err := backend.Accept()
		require.NoError(t, err)
		defer server.Close()
		require.IsType(t, (*sdp.Conn)(nil), server)
		says(t, client, server, "question")
		says(t, server, client, "answer")
	})
}
