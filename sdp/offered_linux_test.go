package sdp

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dialsWithoutMemory has another process dial that can make no memory file, since its files may
// not be so long, and returns what it says of that.
func dialsWithoutMemory(t *testing.T, network, address, devices string) (said func() string) {
	t.Helper()
	t.Setenv(devicesVariable, devices)
	t.Setenv(shortFilesVariable, "1")
	child := peerCommand("dial " + network + " " + address)
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() {
		stdin.Close()
		finish(child)
	})
	return func() string {
		all, err := io.ReadAll(out)
		require.NoError(t, err)
		return string(all)
	}
}

// TestChannelThatIsNotTaken: the client cannot take the channel that it has offered, and
// there is no iwarp to go to. Both ends go on as plain TCP on the same connection.
func TestChannelThatIsNotTaken(t *testing.T) {
	lc := ListenConfig{Config: &Config{Devices: []string{"shm"}}}
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	accepted := accept1(ln)
	said := dialsWithoutMemory(t, "tcp", ln.Addr().String(), "shm")
	s := <-accepted
	require.IsType(t, (*net.TCPConn)(nil), s)
	go func() {
		io.Copy(s, struct{ io.Reader }{s})
		s.Close()
	}()
	assert.Equal(t, "hello over *net.TCPConn\n", said())

	said = dialsWithoutMemory(t, "sdp", ln.Addr().String(), "shm")
	assert.Contains(t, said(), "no RDMA device can be used: shm: shm: file size limit")

	only, err := lc.Listen(t.Context(), "sdp", "127.0.0.1:0")
	require.NoError(t, err)
	accepted = accept1(only)
	said = dialsWithoutMemory(t, "tcp", only.Addr().String(), "shm")
	assert.Equal(t, " over *net.TCPConn\n", said(), "it is connected, as with net.Dial, and nobody serves it")
	only.Close()
	assert.Nil(t, <-accepted)
}

// TestAnotherDevice: a client on network sdp that cannot take the channel dials again, and
// offers another device. The server's program hears nothing of the first connection.
func TestAnotherDevice(t *testing.T) {
	for _, network := range []string{"sdp", "tcp"} {
		lc := ListenConfig{Config: &Config{Devices: []string{"shm", "iwarp"}}}
		ln, err := lc.Listen(t.Context(), network, "127.0.0.1:0")
		require.NoError(t, err)
		defer ln.Close()
		accepted := accept1(ln)
		said := dialsWithoutMemory(t, "sdp", ln.Addr().String(), "shm,iwarp")
		s := <-accepted
		require.IsType(t, (*Conn)(nil), s)
		go func() {
			io.Copy(s, struct{ io.Reader }{s})
			s.Close()
		}()
		got := said()
		assert.Contains(t, got, "hello over iwarp")
		assert.Contains(t, got, "file size limit")
	}
}
