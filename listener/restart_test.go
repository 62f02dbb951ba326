package listener

import (
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCloseGivesOutWhatWasAccepted: what waits for Accept, and what is on its way up,
// still comes out of Accept; then it says that the listener is closed.
func TestCloseGivesOutWhatWasAccepted(t *testing.T) {
	l, ready, coming := backlog(t, after(func(t *limits) { t.acceptGrace, t.closeGrace = time.Hour, 2*time.Hour }), 1)
	require.NoError(t, l.Close())
	for _, c := range []*net.TCPConn{ready, coming[0]} {
		if c != ready {
			_, err := c.Write([]byte("GET")) // it is plain after all
			require.NoError(t, err)
		}
		in, err := l.Accept()
		require.NoError(t, err)
		defer in.Discard()
		assert.Equal(t, c.LocalAddr(), in.Conn.RemoteAddr())
	}
	for range 2 { // at once: an hour is not over
		_, err := l.Accept()
		assert.ErrorIs(t, err, net.ErrClosed)
	}
	assert.Error(t, l.Close(), "the listener below is closed")
}

// TestCloseEndsAcceptThatWaitsForASilentClient after a bounded time.
func TestCloseEndsAcceptThatWaitsForASilentClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		cfg := testConfig()
		cfg.SDPOnly = true // or nothing is read from a pipe
		l := New(f, cfg)
		ended := make(chan error, 1)
		go func() {
			_, err := l.Accept()
			ended <- err
		}()
		server, client := net.Pipe()
		defer client.Close()
		f.next <- server
		synctest.Wait()
		start := time.Now()
		l.Close()
		assert.ErrorIs(t, <-ended, net.ErrClosed)
		assert.Equal(t, defaultLimits.closeGrace, time.Since(start))
		synctest.Wait()
		_, err := client.Write([]byte("x"))
		assert.Error(t, err, "it has been closed")
	})
}

// deaf is a connection that says that it has deadlines, and has none.
type deaf struct{ net.Conn }

func (deaf) SetDeadline(time.Time) error { return nil }

// TestCloseWithAllSlotsTaken by clients that nothing ends, and another one that waits for a slot.
func TestCloseWithAllSlotsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		cfg := testConfig()
		cfg.SDPOnly = true // or nothing is read from a pipe
		l := prepare(f, cfg, 1).start()
		ended := make(chan error, 1)
		go func() {
			_, err := l.Accept()
			ended <- err
		}()
		var clients []net.Conn
		for range 2 {
			server, client := net.Pipe()
			clients = append(clients, client)
			f.next <- deaf{server}
			synctest.Wait()
		}
		l.Close()
		assert.ErrorIs(t, <-ended, net.ErrClosed)
		synctest.Wait()
		for _, c := range clients {
			_, err := c.Write([]byte("x"))
			assert.ErrorIs(t, err, io.ErrClosedPipe)
		}
	})
}

// shared are two listeners on one socket.
func shared(t *testing.T) (l *Listener, other net.Listener) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	// Duplicated before anybody accepts: FileListener has the socket block for a moment,
	// and a call of accept that began then would ignore its deadline.
	f, err := ln.(*net.TCPListener).File()
	require.NoError(t, err)
	defer f.Close()
	other, err = net.FileListener(f)
	require.NoError(t, err)
	t.Cleanup(func() { other.Close() })
	return start(t, ln, testConfig(), 8, defaultLimits), other
}

// TestSharedSocket: connections are accepted only while Accept waits. All other clients are the other
// process's, also right after an Accept.
func TestSharedSocket(t *testing.T) {
	l, other := shared(t)
	for range 5 {
		dialPlain(t, l, "GET")
		c, err := other.Accept()
		require.NoError(t, err)
		c.Close()

		came := startAccept(t, l)
		dial(t, l, "GET")
		in := <-came
		in.Discard()
	}
}

// TestAcceptObeysItsDeadline, and accepts nothing afterwards.
func TestAcceptObeysItsDeadline(t *testing.T) {
	l, other := shared(t)
	require.NoError(t, l.SetDeadline(time.Now().Add(20*time.Millisecond)))
	_, err := l.Accept()
	assert.True(t, timedOut(err), "%v", err)
	require.NoError(t, l.SetDeadline(time.Time{}))
	l.mu.Lock()
	assert.False(t, l.state.inAccept())
	l.mu.Unlock()
	dial(t, l, "GET")
	c, err := other.Accept()
	require.NoError(t, err)
	c.Close()
	came := startAccept(t, l)
	dialPlain(t, l, "")
	if in := <-came; in != nil { // and the interruption is no error
		in.Discard()
	}
}

// TestNothingIsAcceptedBeforeAccept: a program that only passes its socket to another process takes
// nothing from it.
func TestNothingIsAcceptedBeforeAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := New(f, testConfig())
		defer l.Close()
		server, client := plainPipe()
		defer client.Close()
		synctest.Wait()
		select {
		case f.next <- server:
			require.Fail(t, "it accepts")
		default:
		}
		go func() { f.next <- server }()
		in, err := l.Accept()
		require.NoError(t, err)
		in.Discard()
	})
}

// TestCloseResetsWhatNobodyAccepts, as a kernel resets the connections in a backlog.
func TestCloseResetsWhatNobodyAccepts(t *testing.T) {
	l, c, _ := backlog(t, after(func(t *limits) { t.acceptGrace = time.Millisecond }), 0)
	require.NoError(t, l.Close())
	_, err := c.Read(make([]byte, 1))
	assert.ErrorIs(t, err, syscall.ECONNRESET)
}
