package sdp

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/stream"
)

// exhaust uses up the descriptors of the process until the test ends.
func exhaust(t *testing.T) {
	t.Helper()
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	t.Cleanup(func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) })
	low := limit
	low.Cur = 256
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	for {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			require.Equal(t, unix.EMFILE, err)
			return
		}
		t.Cleanup(func() { unix.Close(fd) })
	}
}

// TestRelief: a Dial or an Accept that finds no descriptor makes connections in shared memory give theirs back.
func TestRelief(t *testing.T) {
	if restless {
		t.Skip("missing: connections that stay in shared memory")
	}
	for _, who := range []string{"Dial", "Accept"} {
		t.Run(who, func(t *testing.T) {
			c, s := localPair(t, "tcp", nil)
			config := overSHM(nil)
			ln, err := (&ListenConfig{Config: config}).Listen(context.Background(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer ln.Close()
			early, err := net.Dial("tcp", ln.Addr().String())
			require.NoError(t, err)
			defer early.Close()
			intoRing(t, c, s)
			exhaust(t)
			var another net.Conn
			if who == "Dial" {
				another, err = (&Dialer{Config: config}).Dial("tcp", ln.Addr().String())
			} else {
				another, err = ln.Accept()
			}
			require.NoError(t, err)
			another.Close()
			assert.Equal(t, devicePlain, c.Device())
			assert.Equal(t, "process has no file descriptors left; raise RLIMIT_NOFILE", c.Stats().OnTCP)
			exchange(t, c, s)
		})
	}
}

// TestReliefFromKeptSegments: the descriptors of segments that no connection uses are given back, too.
func TestReliefFromKeptSegments(t *testing.T) {
	if restless {
		t.Skip("missing: connections that stay in shared memory")
	}
	c, s := localPair(t, "tcp", nil)
	intoRing(t, c, s)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
	for end := time.Now().Add(soon); stream.Sharing() > 0; time.Sleep(time.Millisecond) { // of other tests
		require.True(t, time.Now().Before(end))
	}
	exhaust(t)
	another, err := (&Dialer{Config: overSHM(nil)}).Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	another.Close()
}

// TestDroppedConnectionsInTheRing are closed by the garbage collector, and leave no goroutine and no shared memory.
func TestDroppedConnectionsInTheRing(t *testing.T) {
	for stream.Sharing() > 0 { // of other tests
		stream.LeaveAll(errors.New("test"))
		time.Sleep(time.Millisecond)
	}
	before, open := runtime.NumGoroutine(), Stats().Open
	const many = 20
	peers := make([]*Conn, many)
	for i := range peers {
		c, s, err := localEnds("tcp", nil)
		require.NoError(t, err)
		intoRing(t, c, s)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
		_, err = c.Write([]byte("last words"))
		require.NoError(t, err)
		peers[i] = s
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		return Stats().Open <= open+many
	}, soon, 10*time.Millisecond)
	for _, s := range peers {
		require.NoError(t, s.SetDeadline(time.Now().Add(soon)))
		got, err := io.ReadAll(s)
		assert.NoError(t, err)
		assert.Equal(t, "last words", string(got))
		assert.NoError(t, s.Close())
	}
	for end := time.Now().Add(soon); stream.Sharing() > 0 || runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "%d goroutines, %d before", runtime.NumGoroutine(), before)
	}
}
