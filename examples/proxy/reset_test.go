//go:build unix

package proxy_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/examples/internal/programs"
)

func TestResetPasses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	address := across(t, l.Addr().String())
	for _, who := range []string{"client", "server"} {
		connect := func(t *testing.T) (resets, other *net.TCPConn) {
			resets, other = connect(t, address, l)
			if who == "server" {
				resets, other = other, resets
			}
			return resets, other
		}
		t.Run(who+" is idle", func(t *testing.T) {
			resets, other := connect(t)
			says(t, resets, other, "hello")
			reset(resets)
			requireReset(t, other)
		})
		t.Run(who+" has ended its direction", func(t *testing.T) {
			resets, other := connect(t)
			require.NoError(t, resets.CloseWrite())
			_, err := io.ReadAll(other)
			require.NoError(t, err)
			reset(resets)
			requireBroken(t, other)
		})
		t.Run(who+" is written to", func(t *testing.T) {
			resets, other := connect(t)
			go func() {
				io.CopyN(io.Discard, resets, 1<<20)
				reset(resets)
			}()
			requireBroken(t, other)
		})
		t.Run(who+" writes", func(t *testing.T) {
			resets, other := connect(t)
			go func() {
				io.CopyN(resets, zeros{}, 1<<20)
				reset(resets)
			}()
			requireReset(t, other)
		})
		t.Run(who+" has filled every buffer", func(t *testing.T) {
			resets, other := connect(t)
			filled := fill(t, resets)
			reset(resets)
			n, err := io.Copy(io.Discard, other)
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.LessOrEqual(t, n, filled)
		})
	}
}

// reset closes a connection so that its peer sees a reset and no end of file.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

// fill writes until nothing has gone for a while.
func fill(t *testing.T, c net.Conn) (n int64) {
	t.Helper()
	for {
		require.NoError(t, c.SetWriteDeadline(time.Now().Add(200*time.Millisecond)))
		put, err := c.Write(make([]byte, 64<<10))
		n += int64(put)
		if err != nil {
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			return n
		}
	}
}

// requireReset requires that a reset ends what can be read, and no end of file.
func requireReset(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, c)
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

// requireBroken requires that a Write finds out that nobody is there any more.
func requireBroken(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := io.Copy(c, zeros{})
	require.Error(t, err)
	require.True(t, errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE), "%v", err)
}

func TestUnreachableServerIsAReset(t *testing.T) {
	for name, address := range map[string]string{
		"tcp": across(t, programs.RefusedAddress(t)),
		"sdp": func() string {
			address, _ := start(t, "tcp://127.0.0.1:0", "sdp://"+programs.RefusedAddress(t))
			return address
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			client, err := net.Dial("tcp", address)
			if err == nil { // else it came before connect(2) returned
				defer client.Close()
				_, err = client.Read(make([]byte, 1))
			}
			require.ErrorIs(t, err, syscall.ECONNRESET)
		})
	}
}

func TestSignalEndsAnIdleRelay(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		_, relay := start(t, "tcp://127.0.0.1:0", "sdp://"+programs.FreeAddress(t))
		require.NoError(t, relay.Signal(s))
		require.Zero(t, relay.Wait().ExitCode())
	}
}

func TestSignalLetsConnectionsEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	middle, inner := start(t, "sdp://127.0.0.1:0", "tcp://"+l.Addr().String(), "-grace", "1h")
	address, outer := start(t, "tcp://127.0.0.1:0", "sdp://"+middle, "-grace", "1h")
	client, server := connect(t, address, l)
	require.NoError(t, l.Close()) // what is dialled below has no server
	require.NoError(t, inner.Signal(syscall.SIGTERM))
	require.NoError(t, outer.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err != nil
	}, patience, patience/1000, "it goes on listening")

	says(t, client, server, "still here")
	require.NoError(t, client.CloseWrite())
	says(t, server, client, "as am I")
	require.NoError(t, server.Close())
	require.NoError(t, client.Close())
	require.Zero(t, outer.Wait().ExitCode())
	require.Zero(t, inner.Wait().ExitCode())
}

func TestGraceEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	address, relay := start(t, "tcp://127.0.0.1:0", "tcp://"+l.Addr().String(), "-grace", "10ms")
	client, server := connect(t, address, l)
	says(t, client, server, "forever")
	require.NoError(t, relay.Signal(syscall.SIGTERM))
	requireReset(t, client)
	requireReset(t, server)
	require.Zero(t, relay.Wait().ExitCode())
}
