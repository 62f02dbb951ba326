//go:build linux

package inside

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/sdp"
)

// serveVariable makes the test binary the server for tests between two hosts; its value is
// the address. serverVariable is the server's address for the clients.
const (
	serveVariable  = "VERBS_SERVE"
	serverVariable = "VERBS_SERVER"
)

// fastKeepAlive detects a vanished host within seconds.
var fastKeepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3}

// maxDetection is how long an idle end may take to notice that its peer has vanished:
// keepalive's time, plus what an emulated processor needs.
const maxDetection = 10 * (4*time.Second + 6*time.Second)

// verbsOrIWARP uses the hardware if possible.
var verbsOrIWARP = &sdp.Config{Devices: []string{"verbs", "iwarp"}, StepUpTimeout: 3 * time.Second, HandshakeTimeout: 20 * time.Second}

// TestServe serves until a client ends it. The first byte of each connection is a command.
func TestServe(t *testing.T) {
	at := os.Getenv(serveVariable)
	if at == "" {
		t.Skip("missing: " + serveVariable + ", the address for the server of the tests between two hosts; test/lab sets it")
	}
	ln, err := (&sdp.ListenConfig{Config: verbsOrIWARP}).Listen(context.Background(), "sdp", net.JoinHostPort(at, "7471"))
	require.NoError(t, err)
	defer ln.Close()
	var serving sync.WaitGroup
	defer serving.Wait()
	for over := false; !over; {
		c, err := ln.Accept()
		require.NoError(t, err)
		var what [1]byte
		_, err = io.ReadFull(c, what[:])
		require.NoError(t, err)
		switch what[0] {
		case 'e': // echo
			serving.Go(func() {
				defer c.Close()
				_, err := io.Copy(c, struct{ io.Reader }{c})
				assert.NoError(t, err)
			})
		case 'c', 'd': // drop all packets, or take the port down, and see how this end fails
			require.NoError(t, c.(*sdp.Conn).SetKeepAliveConfig(fastKeepAlive))
			_, err = c.Write(what[:])
			require.NoError(t, err)
			serving.Go(func() {
				defer c.Close()
				time.Sleep(200 * time.Millisecond) // the answer has arrived by now
				cutting := "tc qdisc add dev eth1 root netem loss 100%"
				if what[0] == 'd' {
					cutting = "ip link set eth1 down"
				}
				output, err := exec.Command("bash", "-c", cutting).CombinedOutput()
				assert.NoError(t, err, "%s", output)
				t.Log("the cable was cut")
				cut := time.Now()
				for err == nil {
					_, err = c.Read(make([]byte, 4096))
				}
				t.Logf("this end noticed after %v: %v", time.Since(cut), err)
				assertGone(t, err)
			})
		case 's': // close while written data is still in flight
			output, err := exec.Command("bash", "-c", "tc qdisc add dev eth1 root netem rate 256kbit").CombinedOutput()
			assert.NoError(t, err, "%s", output)
			begin := time.Now()
			for range slowWrites {
				_, err = c.Write(make([]byte, slowSize))
				assert.NoError(t, err)
			}
			assert.NoError(t, c.Close())
			assert.NoError(t, sdp.WaitClosed(t.Context()))
			// siw accepted all data long ago.
			assert.Greater(t, time.Since(begin), 2*time.Second, "WaitClosed must wait until the peer's device has the data")
		case 'g':
			over = true
			c.Close()
		}
	}
}

// assertGone checks that err is an error that programs know from TCP.
func assertGone(t *testing.T, err error) {
	t.Helper()
	var op *net.OpError
	assert.ErrorAs(t, err, &op)
	assert.True(t, slices.ContainsFunc([]error{
		syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN, syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EPIPE,
	}, func(known error) bool { return errors.Is(err, known) }), "%v", err)
}

// dialServer dials the server, checks that the connection uses device if that is not empty,
// and sends a command.
func dialServer(t *testing.T, device string, what byte) *sdp.Conn {
	t.Helper()
	at := os.Getenv(serverVariable)
	if at == "" {
		t.Skip("missing: " + serverVariable + ", the address of the other host; test/lab sets it")
	}
	c, err := (&sdp.Dialer{Config: verbsOrIWARP}).Dial("sdp", at)
	require.NoError(t, err)
	conn := c.(*sdp.Conn)
	if device != "" {
		require.Equal(t, device, conn.Device(), "%v", conn.Stats().Declined)
	}
	_, err = c.Write([]byte{what})
	require.NoError(t, err)
	return conn
}

// TestOtherHost: the server echoes 4 MB.
func TestOtherHost(t *testing.T) {
	c := dialServer(t, "verbs", 'e')
	defer c.Close()
	content := make([]byte, 4<<20)
	rand.NewChaCha8([32]byte{4}).Read(content)
	var writing sync.WaitGroup
	writing.Go(func() {
		_, err := c.Write(content)
		assert.NoError(t, err)
		assert.NoError(t, c.CloseWrite())
	})
	got, err := io.ReadAll(struct{ io.Reader }{c})
	require.NoError(t, err)
	assert.True(t, bytes.Equal(content, got))
	writing.Wait()
}

// TestFiltered: the network drops RDMA's packets but not TCP's. The connection uses iwarp.
// If only verbs is allowed, network "sdp" fails and the error says why.
func TestFiltered(t *testing.T) {
	c := dialServer(t, "iwarp", 'e')
	defer c.Close()
	assert.Contains(t, c.Stats().Declined["verbs"], "connecting timed out")
	_, err := c.Write([]byte("hello"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 5))
	require.NoError(t, err)
	cfg := *verbsOrIWARP
	cfg.Devices = []string{"verbs"}
	_, err = (&sdp.Dialer{Config: &cfg}).Dial("sdp", os.Getenv(serverVariable))
	assert.ErrorContains(t, err, "connecting timed out")
}

// TestTOS: the network drops RoCE packets that do not have the TOS of the TCP connection.
func TestTOS(t *testing.T) {
	c := dialServer(t, "iwarp", 'e')
	assert.Contains(t, c.Stats().Declined["verbs"], "connecting timed out")
	require.NoError(t, c.Close())
	d := sdp.Dialer{Config: verbsOrIWARP, NetDialer: new(net.Dialer)}
	d.NetDialer.Control = func(_, _ string, rc syscall.RawConn) (err error) {
		_ = rc.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, 0x88) })
		return err
	}
	marked, err := d.Dial("sdp", os.Getenv(serverVariable))
	require.NoError(t, err)
	defer marked.Close()
	require.Equal(t, "verbs", marked.(*sdp.Conn).Device(), "%v", marked.(*sdp.Conn).Stats().Declined)
	_, err = marked.Write([]byte("ehello"))
	require.NoError(t, err)
	_, err = io.ReadFull(marked, make([]byte, 5))
	require.NoError(t, err)
}

// TestRTULost: the network drops the last message of rdma_cm's handshake, which the client repeats only
// after seconds, when it is asked again. The server does without.
func TestRTULost(t *testing.T) {
	c := dialServer(t, "verbs", 'e')
	defer c.Close()
	_, err := c.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = io.ReadFull(c, make([]byte, 5))
	require.NoError(t, err)
	require.NoError(t, c.CloseWrite())
	_, err = c.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
}

// TestHostGone: the other host vanishes without closing the connection.
func TestHostGone(t *testing.T) {
	how, what := os.Getenv("VERBS_GONE"), byte('c')
	if how == "port down" {
		what = 'd'
	}
	c := dialServer(t, "verbs", what)
	defer c.Close()
	require.NoError(t, c.SetKeepAliveConfig(fastKeepAlive))
	_, err := io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
	begin := time.Now()
	switch how {
	case "idle": // without a call in progress
		for time.Since(begin) < maxDetection {
			if _, err = c.Write(nil); err != nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err == nil { // one call learns of it
			_, err = c.Read(make([]byte, 1))
		}
	case "reading", "port down":
		_, err = c.Read(make([]byte, 1))
	case "writing":
		for err == nil {
			_, err = c.Write(make([]byte, 64<<10))
		}
	}
	t.Logf("%s: after %v: %v", how, time.Since(begin), err)
	assertGone(t, err)
	assert.Less(t, time.Since(begin), maxDetection)
	_, err = c.Write([]byte("more"))
	assertGone(t, err)
}

// This takes about three seconds on the slow link. siw reports the data as sent as soon as
// it has accepted them.
const (
	slowWrites = 40
	slowSize   = 2 << 10
)

// TestSlowCable: data arrives although the sender closes at once and the link is slow.
func TestSlowCable(t *testing.T) {
	c := dialServer(t, "verbs", 's')
	defer c.Close()
	begin := time.Now()
	n, err := io.Copy(io.Discard, c)
	t.Logf("%d bytes after %v", n, time.Since(begin))
	assert.NoError(t, err)
	assert.EqualValues(t, slowWrites*slowSize, n)
}

// TestEndServer ends the server.
func TestEndServer(t *testing.T) { dialServer(t, "", 'g').Close() }
