package engine

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/session"
)

// TestOptionsReachTheSocket reads them back from the kernel.
func TestOptionsReachTheSocket(t *testing.T) {
	c, _ := pair(t)
	get := func(level, option int) (value int) {
		t.Helper()
		rc, err := c.tcp.(syscall.Conn).SyscallConn()
		require.NoError(t, err)
		require.NoError(t, rc.Control(func(fd uintptr) { value, err = unix.GetsockoptInt(int(fd), level, option) }))
		require.NoError(t, err)
		return value
	}
	for _, on := range []bool{false, true, false} {
		require.NoError(t, c.SetKeepAlive(on))
		assert.Equal(t, on, get(unix.SOL_SOCKET, unix.SO_KEEPALIVE) != 0)
		require.NoError(t, c.SetNoDelay(on))
		assert.Equal(t, on || c.device == "iwarp", get(unix.IPPROTO_TCP, unix.TCP_NODELAY) != 0, "iwarp never delays")
	}
	for _, period := range []time.Duration{77 * time.Second, 5 * time.Second} {
		require.NoError(t, c.SetKeepAlivePeriod(period))
		assert.Equal(t, int(period/time.Second), get(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE))
	}
	for _, size := range []int{32 << 10, 64 << 10} {
		require.NoError(t, c.SetWriteBuffer(size))
		assert.Equal(t, 2*size, get(unix.SOL_SOCKET, unix.SO_SNDBUF), "the kernel doubles it")
	}
}

func TestCRCOnOneHost(t *testing.T) {
	for _, v := range []struct{ server, client bool }{{}, {server: true}, {client: true}, {true, true}} {
		lc := ListenConfig{Config: &Config{CRC: v.server}}
		ln, err := lc.Listen(t.Context(), "sdp", "127.0.0.1:0")
		require.NoError(t, err)
		d := Dialer{Config: &Config{CRC: v.client}}
		c, s, err := bothEnds(ln, func(address string) (net.Conn, error) { return d.Dial("sdp", address) })
		require.NoError(t, err)
		batch := engineOf(t, c).out.batch
		sameBytes(t, c, s, random(1000))
		c.Close()
		s.Close()
		ln.Close()
		assert.Equal(t, v.server || v.client, batch < session.MaxBatch, "%+v: batches are small with CRC", v)
	}
}
