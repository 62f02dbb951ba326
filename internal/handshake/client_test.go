package handshake

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake/handshaketest"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
)

// TestStaysOnIWARP has a channel that does not come up. The connection stays where it is, if
// the server allows that and iwarp was offered.
func TestStaysOnIWARP(t *testing.T) {
	cfg := testConfig()
	cfg.SDPOnly = true
	// That the device took its time does not mean that the server has given up.
	c := Client{Config: &cfg, Redials: true, offered: []wire.Device{wire.DeviceVerbs, wire.DeviceIWARP}, began: time.Now().Add(-time.Hour)}
	conn, _ := handshaketest.TCPPair(t)
	stays, err := c.stepUp(t.Context(), &Connection{Conn: struct{ net.Conn }{conn}}, nil, nil, wire.Choice{Device: wire.DeviceVerbs, Stay: true})
	assert.NoError(t, err)
	assert.True(t, stays)
	assert.Equal(t, "the peer has sent no token", c.declined.Of(wire.DeviceVerbs))
}

// TestLateClientAsksForPlainTCP: a server confirms that a connection is plain TCP, but no other decision.
// A client that is so late that the server may have given up makes no other.
func TestLateClientAsksForPlainTCP(t *testing.T) {
	cfg := testConfig()
	cfg.ReplyTimeout = 10 * time.Second
	conn, accepted := handshaketest.TCPPair(t)
	served := make(chan *Connection, 1)
	go func() {
		time.Sleep(patience + 50*time.Millisecond)
		up, err := Serve(t.Context(), accepted, cfg)
		assert.NoError(t, err)
		served <- up
	}()
	c := Client{Config: &cfg}
	_, err := c.Connect(t.Context(), conn)
	var not *NotSDPError
	require.ErrorAs(t, err, &not)
	assert.True(t, not.Usable)
	assert.Contains(t, c.declined.Of(wire.DeviceIWARP), "too slow")
	up := <-served
	require.NotNil(t, up)
	assert.Nil(t, up.QP)
	_, err = conn.Write([]byte("x"))
	require.NoError(t, err)
	_, err = up.Conn.Read(make([]byte, 1))
	assert.NoError(t, err)
}

// TestLateClientOfSDPConnectsAgain, once: if the second connection is late too, it decides. These
// connections do not tell when the Reply arrived.
func TestLateClientOfSDPConnectsAgain(t *testing.T) {
	cfg := testConfig()
	cfg.ReplyTimeout, cfg.SDPOnly = 10*time.Second, true
	c := Client{Config: &cfg, Redials: true}
	up, err := connectLate(t, &c, func(conn net.Conn) net.Conn { return struct{ net.Conn }{conn} })
	require.ErrorIs(t, err, errTooLate)
	require.Nil(t, up)
	require.True(t, c.Retry())
	up, err = connectLate(t, &c, func(conn net.Conn) net.Conn { return struct{ net.Conn }{conn} })
	require.NoError(t, err)
	assert.True(t, up.MustDecide)
	up.QP.Abort()
}

// TestLateReply is no reason to give up a connection of network sdp: the server's time for a decision
// begins with it.
func TestLateReply(t *testing.T) {
	conn, _ := handshaketest.TCPPair(t)
	needArrival(t, conn)
	cfg := testConfig()
	cfg.ReplyTimeout, cfg.SDPOnly = 10*time.Second, true
	c := Client{Config: &cfg, Redials: true}
	up, err := connectLate(t, &c, func(conn net.Conn) net.Conn { return conn })
	require.NoError(t, err)
	assert.True(t, up.MustDecide)
	up.QP.Abort()
}

// needArrival skips a test on systems that do not tell when bytes arrived on conn. Linux does.
func needArrival(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, known := sinceArrival(conn); !known {
		require.NotEqual(t, "linux", runtime.GOOS)
		t.Skip("missing: a kernel that tells when bytes arrived")
	}
}

// connectLate connects to a server that replies after patience.
func connectLate(t *testing.T, c *Client, wrap func(net.Conn) net.Conn) (*Connection, error) {
	t.Helper()
	conn, accepted := handshaketest.TCPPair(t)
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	serving.Go(func() {
		time.Sleep(patience + 50*time.Millisecond)
		_, err := Serve(t.Context(), accepted, *c.Config)
		assert.Error(t, err, "the client has left")
	})
	return c.Connect(t.Context(), wrap(conn))
}

// TestArrival: the time counts from what came last.
func TestArrival(t *testing.T) {
	cfg := testConfig()
	cfg.SDPOnly = true
	c := Client{Config: &cfg, Redials: true, began: time.Now().Add(-time.Hour)}
	conn, peer := handshaketest.TCPPair(t)
	needArrival(t, conn)
	_, err := peer.Write([]byte("x"))
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	require.NoError(t, err)
	assert.False(t, c.tooLate(conn))
	time.Sleep(patience + 50*time.Millisecond)
	assert.True(t, c.tooLate(conn))
	_, err = peer.Write([]byte("x"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !c.tooLate(conn) }, 10*time.Second, time.Millisecond)
}

// TestChannelOfALateClient: that it could not be opened says nothing about the device, but the second
// time it does.
func TestChannelOfALateClient(t *testing.T) {
	cfg := testConfig()
	cfg.SDPOnly = true
	c := Client{Config: &cfg, Redials: true, channelDevice: wire.DeviceSHM, offered: []wire.Device{wire.DeviceSHM}, began: time.Now().Add(-time.Hour)}
	for i, want := range []bool{true, false} {
		conn, _ := handshaketest.TCPPair(t)
		c.declined.Set(wire.DeviceSHM, "broken")
		err := c.notTaken(struct{ net.Conn }{conn}, errors.New("broken"))
		assert.Equal(t, want, errors.Is(err, errTooLate), "connection %d: %v", i, err)
		assert.Equal(t, want, c.Retry())
		assert.Equal(t, want, c.failed.Of(wire.DeviceSHM) == "")
	}
}

// stopped is a connection of a process that is stopped before it reads, until the time is over.
type stopped struct {
	net.Conn
	over func()
	read chan struct{}
}

func stop(c net.Conn) *stopped {
	s := &stopped{Conn: c, read: make(chan struct{})}
	s.over = sync.OnceFunc(func() { close(s.read) })
	return s
}

func (s *stopped) SetDeadline(t time.Time) error {
	defer s.over()
	return s.Conn.SetDeadline(t)
}

func (s *stopped) Read(b []byte) (int, error) {
	<-s.read
	return s.Conn.Read(b)
}

// TestReplyAfterItsTime: a process that was stopped finds that the time is over before it finds the
// Reply. Where there is none, it does not wait.
func TestReplyAfterItsTime(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, replies := range []bool{true, false} {
		server, tcp := handshaketest.TCPPair(t)
		client := stop(tcp)
		asked, err := iwarp.Ask(client, iwarp.Config{}, []byte("request"))
		require.NoError(t, err)
		request, err := iwarp.ReadRequest(server)
		require.NoError(t, err)
		if replies {
			require.NoError(t, request.Divert(iwarp.Config{}, []byte("reply")))
			require.Eventually(t, func() bool {
				n, _ := first(tcp, make([]byte, iwarp.KeyLen))
				return n > 0
			}, 5*time.Second, time.Millisecond)
		}
		begin := time.Now()
		reply, err := replyWithin(over, time.Minute, client, asked)
		assert.Less(t, time.Since(begin), 10*time.Second)
		if !replies {
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, "reply", string(reply))
		_, err = server.Write([]byte("x"))
		require.NoError(t, err)
		_, err = client.Read(make([]byte, 1))
		require.NoError(t, err, "no deadline is left")
	}
}
