package listener

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake/handshaketest"
)

// TestLateRequest is never handed to the program as data.
func TestLateRequest(t *testing.T) {
	l := listen(t, testConfig(), 8)
	c := dial(t, l, "")
	awaitUnderway(t, l.Listener, 1)
	dialPlain(t, l, "GET")
	assert.Nil(t, l.accept(t).QP, "it does not wait for the first client for ever")
	_, err := c.Write([]byte(handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello())))
	require.NoError(t, err)
	flags, _ := handshaketest.ReadReply(t, c)
	assert.Zero(t, flags&handshaketest.ReplyRejected)
}

// TestSilentClientIsReset when its time is over and it must speak SDP, for its Request may still come.
func TestSilentClientIsReset(t *testing.T) {
	cfg := testConfig()
	cfg.HandshakeTimeout = 50 * time.Millisecond
	cfg.SDPOnly = true
	reset := func(t *testing.T, l addressed) {
		t.Helper()
		_, err := dial(t, l, "").Read(make([]byte, 1))
		assert.Error(t, err)
		assert.NotEqual(t, io.EOF, err)
		assert.False(t, timedOut(err), "%v", err)
	}
	reset(t, listen(t, cfg, 8))
	t.Run("connections wrapped by the program", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		reset(t, run(t, start(t, wrapping{ln}, cfg, 8, defaultLimits)))
	})
}

// TestSilentClientIsPlain when its time is over, unless it must speak SDP.
func TestSilentClientIsPlain(t *testing.T) {
	cfg := testConfig()
	cfg.HandshakeTimeout = 50 * time.Millisecond
	l := listen(t, cfg, 8)
	c := dial(t, l, "")
	in := l.accept(t)
	assert.Nil(t, in.QP)
	assert.Equal(t, c.LocalAddr(), in.Conn.RemoteAddr())
}

// wrapping is a listener whose connections are of the program's own type.
type wrapping struct{ net.Listener }

type wrapped struct{ *net.TCPConn }

func (l wrapping) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return wrapped{c.(*net.TCPConn)}, nil
}

// TestWrappedConnectionComesOutAsItWentIn if its client is not asked.
func TestWrappedConnectionComesOutAsItWentIn(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := run(t, start(t, wrapping{ln}, testConfig(), 8, defaultLimits))
	dialPlain(t, l, "")
	assert.IsType(t, wrapped{}, l.accept(t).Conn)
}

// TestEachAcceptTakesOne: while one waits for the order of arrival, another one accepts.
func TestEachAcceptTakesOne(t *testing.T) {
	l := idle(t, testConfig(), 8, after(func(t *limits) { t.order = time.Hour }))
	var program sync.WaitGroup
	accepts := func() {
		program.Go(func() {
			if in, err := l.Accept(); assert.NoError(t, err) {
				in.Discard()
			}
		})
	}
	accepts()
	first := dial(t, l, "")
	awaitUnderway(t, l, 1)
	dialPlain(t, l, "")
	awaitReady(l, 1)
	second := dial(t, l, "")
	accepts()
	awaitUnderway(t, l, 2)
	for _, c := range []*net.TCPConn{first, second} {
		_, err := c.Write([]byte("GET"))
		require.NoError(t, err)
	}
	program.Wait()
}

// TestAcceptKeepsTheOrder of arrival, for as long as the program should wait for that.
func TestAcceptKeepsTheOrder(t *testing.T) {
	l := idle(t, testConfig(), 8, after(func(t *limits) { t.order = time.Hour }))
	came := startAccept(t, l)
	first := dial(t, l, "")
	awaitUnderway(t, l, 1)
	second := dialPlain(t, l, "")
	awaitReady(l, 1)
	_, err := first.Write([]byte("GET")) // it is plain, as it turns out
	require.NoError(t, err)
	in := <-came
	require.NotNil(t, in)
	defer in.Discard()
	assert.Equal(t, first.LocalAddr(), in.Conn.RemoteAddr())
	in, err = l.Accept()
	require.NoError(t, err)
	defer in.Discard()
	assert.Equal(t, second.LocalAddr(), in.Conn.RemoteAddr())

	p := listen(t, testConfig(), 8)
	dial(t, p, "") // and stays silent
	awaitUnderway(t, p.Listener, 1)
	third := dialPlain(t, p, "")
	assert.Equal(t, third.LocalAddr(), p.accept(t).Conn.RemoteAddr())
}
