package perf

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gosdp/gosdp/internal/meeting"
	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/test/watchdog"
)

const patience = time.Minute

func TestMain(m *testing.M) {
	meeting.TestSelf = true // the server is in the process of the test
	goleak.VerifyTestMain(m)
}

// A report is what a server has said of a measurement.
type report struct {
	kind  byte
	bytes int64
	err   error
}

// serving starts a server and returns its address and its reports.
func serving(t *testing.T) (address string, reports chan report) {
	t.Helper()
	ln, err := Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	reports = make(chan report, 100)
	var all sync.WaitGroup
	all.Go(func() {
		Serve(ln, func(_ net.Conn, kind byte, n int64, err error) { reports <- report{kind, n, err} })
	})
	t.Cleanup(func() {
		ln.Close()
		all.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, sdp.WaitClosed(ctx))
	})
	return ln.Addr().String(), reports
}

func TestEachWay(t *testing.T) {
	address, reports := serving(t)
	ways := []string{"iwarp", TCP}
	if runtime.GOOS == "linux" {
		ways = append(ways, "shm")
	}
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			told := 0
			l, err := RoundTrips(ctx, way, address, 100, 50, 0, 0, func(n int, took time.Duration) { told = n })
			require.NoError(t, err)
			require.Equal(t, 50, l.Count)
			require.Equal(t, 50, told)
			require.LessOrEqual(t, l.Min, l.P50)
			require.LessOrEqual(t, l.P50, l.P99)
			require.LessOrEqual(t, l.P99, l.Max)
			require.Equal(t, report{Echo, 7000, nil}, <-reports)
			for _, kind := range []byte{Upload, Download} {
				rates := 0
				rate, err := Stream(ctx, way, address, kind, 1<<16, 3*progressTime, func(float64) { rates++ })
				require.NoError(t, err)
				require.Positive(t, rate)
				require.Positive(t, rates)
				r := <-reports
				require.NoError(t, r.err)
				require.Equal(t, kind, r.kind)
				require.Positive(t, r.bytes)
			}
		})
	}
	_, err := Dial(t.Context(), "verbs", address)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "Config.Devices", "other devices' reasons are there too")
}

func TestServerRefusesOthers(t *testing.T) {
	address, reports := serving(t)
	for sent, want := range map[string]string{
		"GET / HTTP/1.1\r\n\r\n":                "malformed request",
		"sdpperf1x\x00\x00\x00\x00\x00\x00\x01": "unknown kind",
		"sdpperf1e\x00\x00\x00\x00\x00\x00\x00": "block size 0",
		"sdpperf1e\x00\x00\x00\xff\xff\xff\xff": "block size 4294967295",
		"sdpperf1e\x00\x01\x00\x00\x00\x00\x01": "malformed request",
		"sdpperf1":                              "unexpected EOF",
	} {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		_, err = io.WriteString(c, sent)
		require.NoError(t, err)
		c.(*net.TCPConn).CloseWrite() // which fails if the server has already reset the connection
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		io.Copy(io.Discard, c)
		c.Close()
		require.ErrorContains(t, (<-reports).err, want, "%q", sent)
	}
}

// TestBlocksOfAllClientsAreBounded has clients that ask for the largest block and send nothing.
func TestBlocksOfAllClientsAreBounded(t *testing.T) {
	address, reports := serving(t)
	for range maxMemory/MaxSize + 1 {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write(appendRequest(nil, Upload, MaxSize))
		require.NoError(t, err)
	}
	select {
	case r := <-reports:
		require.ErrorContains(t, r.err, "would exceed 128 MB")
	case <-time.After(patience):
		require.Fail(t, "all clients got their blocks")
	}
	var m memory
	require.NoError(t, m.take(maxMemory))
	require.Error(t, m.take(1))
	m.release(maxMemory)
	require.NoError(t, m.take(1))
}

func TestLatency(t *testing.T) {
	times := make([]time.Duration, 1000)
	for i := range times {
		times[i] = time.Duration(1000 - i)
	}
	require.Equal(t, Latency{1000, 1, 500, 501, 991, 1000}, latencyOf(times))
	require.Equal(t, Latency{}, latencyOf(nil))
}

func TestReasonOf(t *testing.T) {
	err := errors.New("dial sdp: no RDMA device can be used: shm: not in Config.Devices; verbs: no library; install it; iwarp: not in Config.Devices")
	require.EqualError(t, reasonOf(err, "verbs"), "no library; install it")
	require.Equal(t, err, reasonOf(err, "tcp"))
	other := errors.New("connection refused")
	require.Equal(t, other, reasonOf(other, "shm"))
}

func FuzzRequest(f *testing.F) {
	f.Add(appendRequest(nil, Echo, 100))
	f.Add([]byte(strings.Repeat("x", requestLen)))
	f.Fuzz(func(t *testing.T, b []byte) {
		defer watchdog.Start()()
		kind, size, err := readRequest(bytes.NewReader(b))
		if err == nil {
			require.Equal(t, b[:requestLen], appendRequest(nil, kind, size))
		}
	})
}

// TestServerEndsWithItsListener has a client that neither sends nor goes away.
func TestServerEndsWithItsListener(t *testing.T) {
	ln, err := Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write(appendRequest(nil, Echo, 1))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- Serve(ln, func(net.Conn, byte, int64, error) {}) }()
	_, err = c.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(patience):
		require.Fail(t, "it waits for its client")
	}
}

// TestCancelKeepsRoundTrips is cancelled between two round trips, and after one that does not come back.
func TestCancelKeepsRoundTrips(t *testing.T) {
	address, _ := serving(t)
	for _, pause := range []time.Duration{0, time.Hour} {
		ctx, cancel := context.WithCancel(t.Context())
		const count = 1 << 20 // which takes longer than the connection's deadline needs to pass
		l, err := RoundTrips(ctx, TCP, address, 1, count, 0, pause, func(n int, _ time.Duration) {
			if pause > 0 || n == 3 {
				cancel()
			}
		})
		require.NoError(t, err)
		require.Positive(t, l.Count)
		require.Less(t, l.Count, count)
	}
}

// TestNoPauseAtTheEnd, where nothing follows.
func TestNoPauseAtTheEnd(t *testing.T) {
	address, _ := serving(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := RoundTrips(ctx, TCP, address, 1, 1, 0, time.Hour, func(int, time.Duration) {})
	require.NoError(t, err)
	require.Equal(t, 1, l.Count)
	require.NoError(t, ctx.Err())
}

// TestCancelEndsRoundTrips has a server that accepts and says nothing.
func TestCancelEndsRoundTrips(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := RoundTrips(ctx, TCP, ln.Addr().String(), 1, 1, 0, 0, func(int, time.Duration) {})
		ended <- err
	}()
	c, err := ln.Accept()
	require.NoError(t, err)
	defer c.Close()
	cancel()
	select {
	case err := <-ended:
		require.Error(t, err)
	case <-time.After(patience):
		require.Fail(t, "it waits for the server")
	}
}
