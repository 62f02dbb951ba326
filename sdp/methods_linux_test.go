package sdp

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// arrive makes n bytes arrive at c.
func arrive(t *testing.T, c, peer promised, n int) {
	_, err := peer.Write(make([]byte, 1+n))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
}

// resets makes c reset the connection.
func resets(t *testing.T, c promised) {
	require.NoError(t, c.SetLinger(0))
	require.NoError(t, c.Close())
}

// awaitState waits until the kernel has TCP's connection in a state. Ours has everything from its peer
// in memory, or in a socket, when the peer's call has returned.
func awaitState(t *testing.T, c promised, state uint8) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	rc, err := tcp.SyscallConn()
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var info *unix.TCPInfo
		failed := rc.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
		return failed == nil && err == nil && info.State == state
	}, soon, 100*time.Microsecond)
}

// These states are those of Linux, which no call of the program has noticed.
func init() {
	states = append(states, []state{
		{"bytes", func(t *testing.T, c, peer promised) { arrive(t, c, peer, 10) }},
		{"bytes, half-closed by the peer", func(t *testing.T, c, peer promised) {
			arrive(t, c, peer, 10)
			require.NoError(t, peer.CloseWrite())
			awaitState(t, c, unix.BPF_TCP_CLOSE_WAIT)
		}},
		{"bytes, closed by the peer", func(t *testing.T, c, peer promised) {
			arrive(t, c, peer, 10)
			require.NoError(t, peer.Close())
			awaitState(t, c, unix.BPF_TCP_CLOSE_WAIT)
		}},
		{"bytes, reset", func(t *testing.T, c, peer promised) {
			arrive(t, c, peer, 10)
			resets(t, peer)
			awaitState(t, c, unix.BPF_TCP_CLOSE)
		}},
		{"reset, which is not noticed", func(t *testing.T, c, peer promised) {
			resets(t, peer)
			awaitState(t, c, unix.BPF_TCP_CLOSE)
		}},
		{"closed by the peer with unread bytes", func(t *testing.T, c, peer promised) {
			arrive(t, peer, c, 10)
			require.NoError(t, peer.Close())
			awaitState(t, c, unix.BPF_TCP_CLOSE)
		}},
		{"half-closed by both", func(t *testing.T, c, peer promised) {
			require.NoError(t, c.CloseWrite())
			require.NoError(t, peer.CloseWrite())
			awaitEnd(t, c, io.EOF)
			awaitState(t, c, unix.BPF_TCP_CLOSE)
		}},
		{"half-closed by us, closed by the peer", func(t *testing.T, c, peer promised) {
			require.NoError(t, c.CloseWrite())
			awaitEnd(t, peer, io.EOF)
			require.NoError(t, peer.Close())
			awaitState(t, c, unix.BPF_TCP_CLOSE)
		}},
		{"half-closed by us, then reset", func(t *testing.T, c, peer promised) {
			require.NoError(t, c.CloseWrite())
			awaitEnd(t, peer, io.EOF)
			resets(t, peer)
			awaitState(t, c, unix.BPF_TCP_CLOSE)
		}},
		{"half-closed by the peer, then reset", func(t *testing.T, c, peer promised) {
			require.NoError(t, peer.CloseWrite())
			awaitEnd(t, c, io.EOF)
			resets(t, peer)
			awaitState(t, c, unix.BPF_TCP_CLOSE)
		}},
		{"half-closed by the peer, then closed with unread bytes", func(t *testing.T, c, peer promised) {
			require.NoError(t, peer.CloseWrite())
			awaitEnd(t, c, io.EOF)
			arrive(t, peer, c, 10)
			require.NoError(t, peer.Close())
			awaitState(t, c, unix.BPF_TCP_CLOSE)
		}},
		{"read half closed by us, bytes", func(t *testing.T, c, peer promised) {
			require.NoError(t, c.CloseRead())
			_, err := peer.Write(make([]byte, 10))
			require.NoError(t, err)
		}},
		{"read half closed by us, closed by the peer", func(t *testing.T, c, peer promised) {
			require.NoError(t, c.CloseRead())
			require.NoError(t, peer.Close())
			awaitState(t, c, unix.BPF_TCP_CLOSE_WAIT)
		}},
	}...)
}
