package engine

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/observe"
)

// vanish has the peer's host be gone, as far as a connection is concerned: a filter
// drops every segment that comes to it. The function that is returned undoes that.
func vanish(t *testing.T, c syscall.Conn) (appear func()) {
	t.Helper()
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	require.NoError(t, raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
	}))
	require.NoError(t, err)
	return func() {
		raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
		})
		assert.NoError(t, err)
	}
}

// iwarpPair is a pair whose peer's host can vanish.
func iwarpPair(t *testing.T) (c, s *Conn) {
	t.Helper()
	t.Setenv(thresholdVariable, "-1") // a Write that is advertised waits for the peer
	return pair(t)
}

// TestCloseDoesNotWaitForAVanishedHost, and delivers when it is back.
func TestCloseDoesNotWaitForAVanishedHost(t *testing.T) {
	nothingCloses(t)
	c, s := iwarpPair(t)
	appear := vanish(t, s)
	_, err := c.Write(streamAt(0, 100_000))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	assert.Equal(t, 1, observe.Totals().Closing)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, WaitClosed(over), context.Canceled)

	appear()
	n, err := readStream(s, 0, forever, 10_000)
	assert.Equal(t, io.EOF, err)
	assert.Equal(t, 100_000, n)
	assert.NoError(t, WaitClosed(t.Context()))
	assert.Zero(t, observe.Totals().Closing)
	require.NoError(t, s.Close())
}

// TestCloseBesideAPeerThatWrites resets in the background, as TCP does, when payload
// comes that nobody will read.
func TestCloseBesideAPeerThatWrites(t *testing.T) {
	nothingCloses(t)
	c, s := iwarpPair(t)
	appear := vanish(t, s) // so that Close is not through at once
	_, err := c.Write([]byte("on its way"))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	_, err = s.Write([]byte("too late"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return observe.Totals().Closing == 0 }, soon, time.Millisecond)
	appear()
	require.Eventually(t, func() bool { // the kernel hears of the reset
		_, err = s.Write([]byte("later still"))
		return err != nil
	}, soon, 10*time.Millisecond)
	checkError(t, err, "write", syscall.ECONNRESET, syscall.EPIPE)
	s.Close()
}

// stuckLog is a handler of a log that does not return before out is closed.
type stuckLog struct {
	slog.Handler
	in, out chan struct{}
	on      atomic.Bool
}

func (l *stuckLog) Enabled(context.Context, slog.Level) bool { return l.on.Load() }

func (l *stuckLog) Handle(context.Context, slog.Record) error {
	close(l.in)
	<-l.out
	return nil
}

// TestLoggerDoesNotStopTheIdleMonitor: the event that ends a connection in the background may
// take as long as the program's Logger likes.
func TestLoggerDoesNotStopTheIdleMonitor(t *testing.T) {
	nothingCloses(t)
	c, s := iwarpPair(t)
	log := &stuckLog{Handler: slog.NewTextHandler(io.Discard, nil), in: make(chan struct{}), out: make(chan struct{})}
	observe.Ended(c, false, nil)
	observe.Opened(c, true, slog.New(log)) // it had no Logger
	log.on.Store(true)
	appear := vanish(t, s)
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	appear()
	<-log.in
	s.mu.Lock()
	idleMonitor.addLocked(s)
	s.mu.Unlock()
	assert.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.idle.ticks > 0
	}, soon, time.Millisecond, "the other connection is not visited")
	close(log.out)
	require.NoError(t, s.Close())
	require.NoError(t, WaitClosed(t.Context()))
}

// TestIdleMonitorSleeps until the next visit is due, and not tick by tick; but a connection that is
// new to it is visited at once.
func TestIdleMonitorSleeps(t *testing.T) {
	nothingCloses(t)
	c, s := iwarpPair(t)
	appear := vanish(t, s)
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	const rest = 32
	require.Eventually(t, func() bool { // it has rested for a while, and has as long to go
		idleMonitor.mu.Lock()
		defer idleMonitor.mu.Unlock()
		if len(idleMonitor.conns) != 1 {
			return false
		}
		next := idleMonitor.conns[c]
		return !idleMonitor.soon && idleMonitor.now+rest <= next && int64(clock()/idleTick)+rest/2 <= next
	}, soon, time.Millisecond)
	s.mu.Lock()
	idleMonitor.addLocked(s)
	idleMonitor.mu.Lock()
	assert.True(t, idleMonitor.soon, "it sleeps on")
	idleMonitor.mu.Unlock()
	s.mu.Unlock()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.idle.ticks > 0
	}, soon, time.Millisecond)
	appear()
	require.NoError(t, s.Close())
	require.NoError(t, WaitClosed(t.Context()))
}

// TestRestingConnectionsAreVisitedTogether, whenever they begin to rest.
func TestRestingConnectionsAreVisitedTogether(t *testing.T) {
	var a, b Conn
	m := monitor{conns: map[*Conn]int64{&a: 0, &b: 0}, now: 17}
	assert.EqualValues(t, 7, m.restLocked(&a, 8))
	m.now = 23
	assert.EqualValues(t, 1, m.restLocked(&b, 8))
	assert.Equal(t, map[*Conn]int64{&a: 24, &b: 24}, m.conns)
	assert.EqualValues(t, 57, m.restLocked(&a, 64))
	assert.EqualValues(t, 1, m.restLocked(&b, 1))
	m.now = 40
	assert.EqualValues(t, 64, m.restLocked(&b, 64), "longer rests are spread")
}

// TestTooManyClosing resets the one that was closed first.
func TestTooManyClosing(t *testing.T) {
	most, descriptors := mostLingering, mostDescriptors
	defer func() { mostLingering, mostDescriptors = most, descriptors }()
	mostLingering = 2
	tooManyClosing(t)
	mostLingering, mostDescriptors = most, func() int { return 2*lingerShare + 1 }
	tooManyClosing(t)
}

// TestTooManyClosingWithoutAnswer: a device that cannot be asked is left to a goroutine after a
// second, which ends when the connection is reset.
func TestTooManyClosingWithoutAnswer(t *testing.T) {
	nothingCloses(t)
	qp := &endingPair{memPair: newMemPair(t, 0)}
	c := memConn(t, qp, true, -1, 0)
	require.NoError(t, c.Close())
	assert.Equal(t, 1, observe.Totals().Closing)
	awaitsCredit(c)
	c.closer.drop()
	ctx, cancel := context.WithTimeout(t.Context(), soon/2)
	defer cancel()
	require.NoError(t, WaitClosed(ctx))
	assert.True(t, qp.aborted.Load())
	assert.Zero(t, observe.Totals().Closing)
}

func tooManyClosing(t *testing.T) {
	nothingCloses(t)
	before := observe.Totals().CloseResets
	for range 4 {
		c, s := iwarpPair(t)
		vanish(t, s)
		_, err := c.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, c.Close())
		t.Cleanup(func() {
			s.SetLinger(0)
			s.Close()
		})
	}
	assert.Equal(t, 2, observe.Totals().Closing)
	assert.Equal(t, before+2, observe.Totals().CloseResets)
	dropAllLingering(t)
}

// nothingCloses waits for the connections of other tests that are closed in the
// background.
func nothingCloses(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return observe.Totals().Closing == 0 }, soon, time.Millisecond)
}

// dropAllLingering ends what is left to the background.
func dropAllLingering(t *testing.T) {
	t.Helper()
	lingering.mu.Lock()
	left := append([]*Conn(nil), lingering.conns...)
	lingering.mu.Unlock()
	for _, c := range left {
		c.closer.drop()
	}
	require.Eventually(t, func() bool { return observe.Totals().Closing == 0 }, soon, time.Millisecond)
}

// TestResetFreesThePort: after SetLinger(0) and Close no socket of TCP stays in TIME_WAIT.
func TestResetFreesThePort(t *testing.T) {
	ln, err := engineListen()
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		for {
			s, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(io.Discard, s)
				s.Close()
			}()
		}
	}()
	// No other program of the host takes a port of this address between Close and Dial.
	own := &net.TCPAddr{IP: net.IPv4(127, 83, 68, 80)}
	d := Dialer{LocalAddr: own, Config: new(Config)}
	for range 5 {
		c, err := d.Dial("sdp", ln.Addr().String())
		require.NoError(t, err)
		d.LocalAddr = c.LocalAddr()
		require.NoError(t, engineOf(t, c).SetLinger(0))
		require.NoError(t, c.Close())
		require.NoError(t, WaitClosed(t.Context()))
	}
}
