package listener

import (
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/localpeer"
)

// TestLateRequest is never handed to the program as data, however late it is.
func TestLateRequest(t *testing.T) {
	lates := []time.Duration{50 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second}
	if testing.Short() {
		lates = lates[:2]
	}
	for _, late := range lates {
		t.Run(late.String(), func(t *testing.T) {
			t.Parallel()
			l := listen(t, testConfig(), 8)
			c := dial(t, l, "")
			time.Sleep(late)
			_, err := c.Write([]byte(requestOf(t, offersOf(), helloOf())))
			require.NoError(t, err)
			flags, _ := readReply(t, c)
			assert.Zero(t, flags&replyRejected)
		})
	}
}

// TestSilentClientIsReset when its time is over, for its Request may still come.
func TestSilentClientIsReset(t *testing.T) {
	cfg := testConfig()
	cfg.HandshakeTime = 50 * time.Millisecond
	l := listen(t, cfg, 8)
	c := dial(t, l, "")
	_, err := c.Read(make([]byte, 1))
	assert.Error(t, err)
	assert.NotEqual(t, io.EOF, err)
	assert.False(t, timedOut(err), "%v", err)
}

// TestClientThatChangesItsMind is plain as soon as its mark is gone.
func TestClientThatChangesItsMind(t *testing.T) {
	l := listen(t, testConfig(), 8)
	c := dial(t, l, "")
	time.Sleep(50 * time.Millisecond) // by then it is waited for
	rc, err := c.SyscallConn()
	require.NoError(t, err)
	start := time.Now()
	require.NoError(t, localpeer.Unmark(rc, localpeer.Dialler))
	in := accept(t, l)
	assert.Nil(t, in.QP)
	assert.Less(t, time.Since(start), 2*recheckMost)
}

// TestAcceptKeepsTheOrder of arrival, for as long as the program should wait for that.
func TestAcceptKeepsTheOrder(t *testing.T) {
	l := listen(t, testConfig(), 8)
	l.mu.Lock()
	l.order = time.Minute // on a busy machine too
	l.mu.Unlock()
	first := dial(t, l, "")
	awaitUnderway(t, l, 1)
	second := dialPlain(t, l, "")
	awaitReady(l, 1)
	came := accepting(t, l)
	_, err := first.Write([]byte("GET")) // it is plain, as it turns out
	require.NoError(t, err)
	in := <-came
	require.NotNil(t, in)
	defer in.discard()
	assert.Equal(t, first.LocalAddr(), in.Conn.RemoteAddr())
	assert.Equal(t, second.LocalAddr(), accept(t, l).Conn.RemoteAddr())

	l = listen(t, testConfig(), 8)
	dial(t, l, "") // and stays silent
	awaitUnderway(t, l, 1)
	start := time.Now()
	third := dialPlain(t, l, "")
	assert.Equal(t, third.LocalAddr(), accept(t, l).Conn.RemoteAddr())
	assert.Less(t, time.Since(start), time.Second)
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

// TestProbedClients on other hosts are waited for, and no others.
func TestProbedClients(t *testing.T) {
	far := func(to string) net.Conn { return elsewhere{to: to} }
	cfg := testConfig()
	assert.Equal(t, nothing, expects(far("192.0.2.1:1"), &cfg))
	cfg.Probed = func(local, remote netip.Addr) bool { return remote.String() == "192.0.2.1" }
	assert.Equal(t, possible, expects(far("192.0.2.1:1"), &cfg))
	assert.Equal(t, nothing, expects(far("192.0.2.2:1"), &cfg))
	cfg.Devices = nil
	assert.Equal(t, nothing, expects(far("192.0.2.1:1"), &cfg))
	cfg.SDPOnly = true
	assert.Equal(t, possible, expects(far("192.0.2.2:1"), &cfg))
}

// elsewhere is a connection with another host.
type elsewhere struct {
	net.Conn
	to string
}

func (e elsewhere) LocalAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(198, 51, 100, 1), Port: 80}
}

func (e elsewhere) RemoteAddr() net.Addr {
	a, _ := net.ResolveTCPAddr("tcp", e.to)
	return a
}
