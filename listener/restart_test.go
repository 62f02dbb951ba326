package listener

import (
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
	l := listenFor(t, testConfig(), 8, after(func(t *times) { t.acceptGrace, t.closeGrace = time.Hour, 2*time.Hour }))
	dial(t, l, "GET")
	awaitReady(l, 1)
	coming := dial(t, l, "")
	awaitUnderway(t, l, 1)
	require.NoError(t, l.Close())
	accept(t, l)
	_, err := coming.Write([]byte("GET")) // it is plain after all
	require.NoError(t, err)
	accept(t, l)
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
		l := New(f, testConfig())
		server, client := net.Pipe()
		defer client.Close()
		f.next <- server
		synctest.Wait()
		l.Close()
		start := time.Now()
		_, err := l.Accept()
		assert.ErrorIs(t, err, net.ErrClosed)
		assert.Equal(t, defaultTimes.closeGrace, time.Since(start))
		synctest.Wait()
		_, err = client.Write([]byte("x"))
		assert.Error(t, err, "it has been closed")
	})
}

// shared are two listeners on one socket, the first of which accepts on demand.
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
	l = newListener(ln, testConfig(), 8)
	t.Cleanup(func() { l.Close() })
	l.OnDemand()
	return l, other
}

// TestOnDemand accepts only while Accept waits: all other clients are the other
// process's, also right after an Accept.
func TestOnDemand(t *testing.T) {
	l, other := shared(t)
	for range 5 {
		dialPlain(t, l, "GET")
		c, err := other.Accept()
		require.NoError(t, err)
		c.Close()

		came := accepting(t, l)
		dial(t, l, "GET")
		in := <-came
		in.Discard()
	}
}

// TestOnDemandAcceptObeysItsDeadline, and accepts nothing afterwards.
func TestOnDemandAcceptObeysItsDeadline(t *testing.T) {
	l, other := shared(t)
	require.NoError(t, l.SetDeadline(time.Now().Add(20*time.Millisecond)))
	_, err := l.Accept()
	assert.True(t, timedOut(err), "%v", err)
	require.NoError(t, l.SetDeadline(time.Time{}))
	l.mu.Lock()
	assert.False(t, l.inAccept)
	l.mu.Unlock()
	dial(t, l, "GET")
	c, err := other.Accept()
	require.NoError(t, err)
	c.Close()
	came := accepting(t, l)
	dialPlain(t, l, "")
	if in := <-came; in != nil { // and the interruption is no error
		in.Discard()
	}
}

// TestNothingIsAcceptedBeforeAccept: a listener that serves no SDP leaves connections in the kernel
// until then. A program that only passes its socket to another process takes none from it.
func TestNothingIsAcceptedBeforeAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		cfg := testConfig()
		cfg.Devices = nil
		l := New(f, cfg)
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
	l := listenFor(t, testConfig(), 8, after(func(t *times) { t.acceptGrace = time.Millisecond }))
	c := dialPlain(t, l, "")
	awaitReady(l, 1)
	require.NoError(t, l.Close())
	_, err := c.Read(make([]byte, 1))
	assert.ErrorIs(t, err, syscall.ECONNRESET)
}
