package handshake

import (
	"context"
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
	assert.Equal(t, "invitation without token", c.declined.Of(wire.DeviceVerbs))
}

// alwaysLate is the Config of a client that is too late to decide, however fast it is.
func alwaysLate() *Config {
	cfg := testConfig()
	cfg.StepUpTimeout, cfg.DecisionTimeout = 0, 1
	return &cfg
}

// TestLateClientAsksForPlainTCP: a server confirms that a connection is plain TCP, but no other decision.
// A client that is so late that the server may have given up makes no other.
func TestLateClientAsksForPlainTCP(t *testing.T) {
	conn, accepted := handshaketest.TCPPair(t)
	served := make(chan *Connection, 1)
	go func() {
		up, err := Serve(t.Context(), accepted, testConfig())
		assert.NoError(t, err)
		served <- up
	}()
	c := Client{Config: alwaysLate()}
	_, err := c.Connect(t.Context(), conn)
	var not *NotSDPError
	require.ErrorAs(t, err, &not)
	assert.True(t, not.Usable)
	assert.Contains(t, c.declined.Of(wire.DeviceIWARP), "timed out at this end")
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
	c := Client{Config: alwaysLate(), Redials: true}
	c.SDPOnly = true
	connect := func() (*Connection, error) {
		conn, accepted := handshaketest.TCPPair(t)
		var serving sync.WaitGroup
		t.Cleanup(serving.Wait)
		serving.Go(func() {
			_, err := Serve(t.Context(), accepted, testConfig())
			assert.Error(t, err, "the client has left")
		})
		return c.Connect(t.Context(), struct{ net.Conn }{conn})
	}
	up, err := connect()
	require.ErrorIs(t, err, errTooLate)
	require.Nil(t, up)
	require.Equal(t, Ask, c.Next(t.Context(), err))
	up, err = connect()
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

// TestArrival: where the kernel tells when the Reply arrived, the time counts from then.
func TestArrival(t *testing.T) {
	cfg := testConfig()
	cfg.SDPOnly, cfg.DecisionTimeout = true, time.Hour
	c := Client{Config: &cfg, Redials: true, began: time.Now().Add(-2 * time.Hour)}
	conn, peer := handshaketest.TCPPair(t)
	needArrival(t, conn)
	_, err := peer.Write([]byte("x"))
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	require.NoError(t, err)
	assert.False(t, c.tooLate(conn))
	cfg.StepUpTimeout, cfg.DecisionTimeout = 0, 1
	require.Eventually(t, func() bool { return c.tooLate(conn) }, time.Minute, time.Millisecond)
	cfg.SDPOnly, cfg.DecisionTimeout = false, time.Hour
	assert.True(t, c.tooLate(conn), "to ask for plain TCP is possible after that")
}

// stopped is a connection of a process that is stopped before it reads, until the time is over.
type stopped struct {
	*net.TCPConn
	over  func()
	read  chan struct{}
	reads int
}

func stop(c *net.TCPConn) *stopped {
	s := &stopped{TCPConn: c, read: make(chan struct{})}
	s.over = sync.OnceFunc(func() { close(s.read) })
	return s
}

func (s *stopped) SetDeadline(t time.Time) error {
	defer s.over()
	return s.TCPConn.SetDeadline(t)
}

func (s *stopped) Read(b []byte) (int, error) {
	<-s.read
	s.reads++
	return s.TCPConn.Read(b)
}

// TestTimeForTheReply: on network tcp the rest of the time is for plain TCP.
func TestTimeForTheReply(t *testing.T) {
	for _, v := range []struct {
		sdpOnly   bool
		left, may time.Duration
		want      time.Duration
	}{
		{false, 0, time.Minute, time.Minute},
		{false, 3 * time.Hour, time.Minute, time.Minute},
		{false, 3 * time.Hour, 4 * time.Hour, time.Hour},
		{true, 0, time.Minute, time.Minute},
		{true, 3 * time.Hour, 2 * time.Hour, 2 * time.Hour},
	} {
		cfg := testConfig()
		cfg.SDPOnly, cfg.ReplyTimeout = v.sdpOnly, v.may
		ctx, cancel := context.WithCancel(t.Context())
		if v.left > 0 {
			ctx, cancel = context.WithTimeout(t.Context(), v.left)
		}
		cancel()
		conn, _ := handshaketest.TCPPair(t)
		_, err := (&Client{Config: &cfg}).Connect(ctx, conn)
		var not *NotSDPError
		require.ErrorAs(t, err, &not)
		assert.InDelta(t, v.want, not.waited, float64(10*time.Minute)*float64(v.want)/float64(time.Hour), "%v", v)
	}
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
			qp, err := request.Accept(iwarp.Config{}, []byte("reply"))
			require.NoError(t, err)
			defer qp.Abort()
			require.Eventually(t, func() bool { return first(tcp) == isPlain }, time.Minute, time.Millisecond)
		}
		reply, err := replyWithin(over, time.Hour, client, asked)
		if !replies {
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			assert.Equal(t, 1, client.reads, "it has looked whether there is one")
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
