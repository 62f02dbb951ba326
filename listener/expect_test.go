package listener

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake/handshaketest"
	"github.com/gosdp/gosdp/internal/localpeer"
)

// TestLateRequest is never handed to the program as data.
func TestLateRequest(t *testing.T) {
	l := listen(t, testConfig(), 8)
	c := dial(t, l, "")
	awaitUnderway(t, l, 1)
	dialPlain(t, l, "GET")
	assert.Nil(t, accept(t, l).QP, "it does not wait for the first client for ever")
	_, err := c.Write([]byte(handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello())))
	require.NoError(t, err)
	flags, _ := handshaketest.ReadReply(t, c)
	assert.Zero(t, flags&handshaketest.ReplyRejected)
}

// TestSilentClientIsReset when its time is over, for its Request may still come.
func TestSilentClientIsReset(t *testing.T) {
	cfg := testConfig()
	cfg.HandshakeTimeout = 50 * time.Millisecond
	reset := func(t *testing.T, l *Listener) {
		t.Helper()
		_, err := dial(t, l, "").Read(make([]byte, 1))
		assert.Error(t, err)
		assert.NotEqual(t, io.EOF, err)
		assert.False(t, timedOut(err), "%v", err)
	}
	reset(t, listen(t, cfg, 8))
	t.Run("connections wrapped by the program", func(t *testing.T) {
		cfg.SDPOnly = true
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		l := newListener(wrapping{ln}, cfg, 8)
		t.Cleanup(func() { l.Close() })
		reset(t, l)
	})
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

// TestClientThatChangesItsMind is plain as soon as its mark is gone.
func TestClientThatChangesItsMind(t *testing.T) {
	l := listen(t, testConfig(), 8)
	c := dial(t, l, "")
	awaitUnderway(t, l, 1)
	rc, err := c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, localpeer.Unmark(rc, localpeer.Dialler))
	assert.Nil(t, accept(t, l).QP)
}

// TestAcceptKeepsTheOrder of arrival, for as long as the program should wait for that.
func TestAcceptKeepsTheOrder(t *testing.T) {
	l := listenFor(t, testConfig(), 8, after(func(t *times) { t.order = time.Hour }))
	first := dial(t, l, "")
	awaitUnderway(t, l, 1)
	second := dialPlain(t, l, "")
	awaitReady(l, 1)
	came := accepting(t, l)
	_, err := first.Write([]byte("GET")) // it is plain, as it turns out
	require.NoError(t, err)
	in := <-came
	require.NotNil(t, in)
	defer in.Discard()
	assert.Equal(t, first.LocalAddr(), in.Conn.RemoteAddr())
	assert.Equal(t, second.LocalAddr(), accept(t, l).Conn.RemoteAddr())

	l = listen(t, testConfig(), 8)
	dial(t, l, "") // and stays silent
	awaitUnderway(t, l, 1)
	third := dialPlain(t, l, "")
	assert.Equal(t, third.LocalAddr(), accept(t, l).Conn.RemoteAddr())
}

// TestClientThatCannotSee that SDP is served, since it connected before, sends no Request.
func TestClientThatCannotSee(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { return localpeer.Mark(c, localpeer.Dialler) }}
	c, err := d.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	l := newListener(ln, testConfig(), 8)
	defer l.Close()
	assert.Nil(t, accept(t, l).QP)
}
