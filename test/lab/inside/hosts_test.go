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

	"github.com/gosdp/gosdp/sdp"
)

// serveVariable has the program be the server of tests between two hosts, at that
// address; serverVariable is where its clients find it.
const (
	serveVariable  = "VERBS_SERVE"
	serverVariable = "VERBS_SERVER"
)

// impatient finds a host that is gone within some seconds.
var impatient = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3}

// most is how long an idle end may take to notice: keepalive's time, and what an
// emulated processor needs.
const most = 4*time.Second + 6*time.Second

// either has SDP use the hardware if it can.
var either = &sdp.Config{Devices: []string{"verbs", "iwarp"}, StepUpTimeout: 3 * time.Second, HandshakeTimeout: 20 * time.Second}

// TestServe serves until a client says that it is the last: the first byte of a
// connection says what is wanted.
func TestServe(t *testing.T) {
	at := os.Getenv(serveVariable)
	if at == "" {
		t.Skip("the server of the tests between two hosts: " + serveVariable + " has its address; test/lab sets it")
	}
	ln, err := (&sdp.ListenConfig{Config: either}).Listen(context.Background(), "sdp", net.JoinHostPort(at, "7471"))
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
		case 'c', 'd': // cut the cable, or the port goes down; and see what becomes of this end
			require.NoError(t, c.(*sdp.Conn).SetKeepAliveConfig(impatient))
			_, err = c.Write(what[:])
			require.NoError(t, err)
			serving.Go(func() {
				defer c.Close()
				time.Sleep(200 * time.Millisecond) // the answer is through
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
				t.Logf("this end knows after %v: %v", time.Since(cut), err)
				assertGone(t, err)
			})
		case 's': // leave while what was written is on its way
			output, err := exec.Command("bash", "-c", "tc qdisc add dev eth1 root netem rate 256kbit").CombinedOutput()
			assert.NoError(t, err, "%s", output)
			begin := time.Now()
			for range slowWrites {
				_, err = c.Write(make([]byte, slowSize))
				assert.NoError(t, err)
			}
			assert.NoError(t, c.Close())
			assert.NoError(t, sdp.WaitClosed(t.Context()))
			// siw has had it all for long.
			assert.Greater(t, time.Since(begin), 2*time.Second, "WaitClosed waits for the peer's device to have it")
		case 'g':
			over = true
			c.Close()
		}
	}
}

// assertGone: the error is one that a program knows from TCP.
func assertGone(t *testing.T, err error) {
	t.Helper()
	var op *net.OpError
	assert.ErrorAs(t, err, &op)
	assert.True(t, slices.ContainsFunc([]error{
		syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN, syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EPIPE,
	}, func(known error) bool { return errors.Is(err, known) }), "%v", err)
}

// asked dials the server and says what is wanted of it, over that device.
func asked(t *testing.T, device string, what byte) *sdp.Conn {
	t.Helper()
	at := os.Getenv(serverVariable)
	if at == "" {
		t.Skip("no other host: " + serverVariable + " has its address; test/lab sets it")
	}
	c, err := (&sdp.Dialer{Config: either}).Dial("sdp", at)
	require.NoError(t, err)
	conn := c.(*sdp.Conn)
	if device != "" {
		require.Equal(t, device, conn.Device(), "%v", conn.Stats().Declined)
	}
	_, err = c.Write([]byte{what})
	require.NoError(t, err)
	return conn
}

// TestOtherHost: bytes go there and come back, many and few.
func TestOtherHost(t *testing.T) {
	c := asked(t, "verbs", 'e')
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

// TestFiltered: where RDMA's packets are dropped on the way and TCP's are not, the
// connection is on iwarp, and network "sdp" with verbs alone says why it is not.
func TestFiltered(t *testing.T) {
	c := asked(t, "iwarp", 'e')
	defer c.Close()
	assert.Contains(t, c.Stats().Declined["verbs"], "connecting takes too long")
	_, err := c.Write([]byte("hello"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 5))
	require.NoError(t, err)
	cfg := *either
	cfg.Devices = []string{"verbs"}
	_, err = (&sdp.Dialer{Config: &cfg}).Dial("sdp", os.Getenv(serverVariable))
	assert.ErrorContains(t, err, "connecting takes too long")
}

// TestHostGone: the other host goes without a word.
func TestHostGone(t *testing.T) {
	how, what := os.Getenv("VERBS_GONE"), byte('c')
	if how == "port down" {
		what = 'd'
	}
	c := asked(t, "verbs", what)
	defer c.Close()
	require.NoError(t, c.SetKeepAliveConfig(impatient))
	_, err := io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
	begin := time.Now()
	switch how {
	case "idle": // and no call in progress
		for time.Since(begin) < most {
			if _, err = c.Write(nil); err != nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		_, err = c.Read(make([]byte, 1))
	case "reading", "port down":
		_, err = c.Read(make([]byte, 1))
	case "writing":
		time.Sleep(500 * time.Millisecond)
		for err == nil {
			_, err = c.Write(make([]byte, 64<<10))
		}
	}
	t.Logf("%s: after %v: %v", how, time.Since(begin), err)
	assertGone(t, err)
	assert.Less(t, time.Since(begin), most)
	_, err = c.Write([]byte("more"))
	assertGone(t, err)
}

// These are some three seconds of the slow cable. siw has taken it all when it says that
// it is sent.
const (
	slowWrites = 40
	slowSize   = 2 << 10
)

// TestSlowCable: what an end has sent comes, though it leaves at once and the cable is
// slow.
func TestSlowCable(t *testing.T) {
	c := asked(t, "verbs", 's')
	defer c.Close()
	begin := time.Now()
	n, err := io.Copy(io.Discard, c)
	t.Logf("%d bytes after %v", n, time.Since(begin))
	assert.NoError(t, err)
	assert.EqualValues(t, slowWrites*slowSize, n)
}

// TestGoodbye ends the server.
func TestGoodbye(t *testing.T) { asked(t, "", 'g').Close() }
