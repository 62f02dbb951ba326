//go:build linux

package inside

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp"
)

// benchPeer makes the test binary the peer of a benchmark. Its value is the size of the
// buffer, the threshold, and the address to dial.
const benchPeer = "VERBS_BENCH_PEER"

func TestMain(m *testing.M) {
	if what := os.Getenv(benchPeer); what != "" {
		if err := runPeer(what); err != nil {
			fmt.Fprintln(os.Stderr, "peer:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runPeer echoes messages of up to pingSize bytes. Of longer messages it reads all, and
// sends one byte at the end.
func runPeer(what string) error {
	var size, threshold int
	var at string
	if _, err := fmt.Sscan(what, &size, &threshold, &at); err != nil {
		return err
	}
	conn, err := dialBench(threshold, at)
	if err != nil {
		return err
	}
	defer conn.Close()
	buf := make([]byte, size)
	for {
		_, err := io.ReadFull(conn, buf)
		switch {
		case err == io.EOF:
			_, err = conn.Write(buf[:1])
			return err
		case err == nil && size <= pingSize:
			_, err = conn.Write(buf)
		}
		if err != nil {
			return err
		}
	}
}

func dialBench(threshold int, at string) (net.Conn, error) {
	if threshold == overTCP {
		return net.Dial("tcp", at)
	}
	return (&sdp.Dialer{Config: benchConfig(threshold)}).DialContext(context.Background(), "sdp", at)
}

func listenBench(b *testing.B, threshold int) (net.Listener, error) {
	if threshold == overTCP {
		return net.Listen("tcp", address(b))
	}
	return (&sdp.ListenConfig{Config: benchConfig(threshold)}).Listen(context.Background(), "sdp", address(b))
}

func benchConfig(threshold int) *sdp.Config {
	cfg := *onVerbs
	cfg.ZCopyThreshold = threshold
	return &cfg
}

// Thresholds that copy everything, or nothing of at least 32 KB, and one that stands for a
// connection of package net, to compare with.
const (
	copying  = -1
	zeroCopy = 32 << 10
	overTCP  = -2
)

// halfCloser is a connection of package net or sdp.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// twoProcesses returns this process's end of a connection with another process.
func twoProcesses(b *testing.B, size, threshold int) halfCloser {
	b.Helper()
	ln, err := listenBench(b, threshold)
	require.NoError(b, err)
	defer ln.Close()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", benchPeer, size, threshold, ln.Addr()))
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	require.NoError(b, child.Start())
	conn, err := ln.Accept()
	require.NoError(b, err)
	b.Cleanup(func() {
		conn.Close()
		require.NoError(b, child.Wait())
	})
	if threshold != overTCP {
		require.Equal(b, "verbs", conn.(*sdp.Conn).Stats().Device)
	}
	return conn.(halfCloser)
}

const pingSize = 64

// A 64-byte round trip.
func BenchmarkPingPong(b *testing.B)    { benchmarkPingPong(b, copying) }
func BenchmarkPingPongTCP(b *testing.B) { benchmarkPingPong(b, overTCP) }

func benchmarkPingPong(b *testing.B, threshold int) {
	conn := twoProcesses(b, pingSize, threshold)
	buf := make([]byte, pingSize)
	b.ResetTimer()
	for range b.N {
		if _, err := conn.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, buf); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	endStream(b, conn)
}

func BenchmarkStream64KB(b *testing.B)         { benchmarkStream(b, 64<<10, copying) }
func BenchmarkStream64KBZeroCopy(b *testing.B) { benchmarkStream(b, 64<<10, zeroCopy) }
func BenchmarkStream1MB(b *testing.B)          { benchmarkStream(b, 1<<20, copying) }
func BenchmarkStream1MBZeroCopy(b *testing.B)  { benchmarkStream(b, 1<<20, zeroCopy) }

// benchmarkStream writes until the peer has read everything.
func benchmarkStream(b *testing.B, size, threshold int) {
	conn := twoProcesses(b, size, threshold)
	buf := make([]byte, size)
	b.SetBytes(int64(size))
	b.ResetTimer()
	for range b.N {
		if _, err := conn.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	endStream(b, conn)
}

// endStream closes the sending direction and waits until the peer has seen the end.
func endStream(b *testing.B, conn halfCloser) {
	require.NoError(b, conn.CloseWrite())
	var last [1]byte
	_, err := io.ReadFull(conn, last[:])
	require.NoError(b, err)
}
