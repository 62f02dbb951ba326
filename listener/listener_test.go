package listener

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/localpeer"
	"github.com/gosdp/gosdp/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testConfig has times that no test reaches.
func testConfig() handshake.Config {
	return handshake.Config{
		Logger:           slog.New(slog.DiscardHandler),
		Devices:          []wire.Device{wire.DeviceIWARP},
		HandshakeTimeout: time.Hour,
		StepUpTimeout:    time.Hour,
		Hello:            wire.Hello{Bufs: 64, MaxAdverts: 4, LocalRcvSz: 4096, IRD: 8, ORD: 16},
	}
}

// listen starts a Listener on loopback with so many places.
func listen(t *testing.T, cfg handshake.Config, places int) *Listener {
	t.Helper()
	return listenFor(t, cfg, places, defaultTimes)
}

// listenFor is listen with other times.
func listenFor(t *testing.T, cfg handshake.Config, places int, times times) *Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := prepare(ln, cfg, places)
	l.times = times
	l.start()
	t.Cleanup(func() { l.Close() })
	return l
}

// after returns defaultTimes with a change.
func after(change func(*times)) times {
	changed := defaultTimes
	change(&changed)
	return changed
}

// dial connects as a client of SDP does, and sends.
func dial(t *testing.T, l *Listener, first string) *net.TCPConn {
	t.Helper()
	return dialWith(t, net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return localpeer.Mark(c, localpeer.Dialler)
	}}, l, first)
}

// dialPlain connects as a client of plain TCP does, and sends.
func dialPlain(t *testing.T, l *Listener, first string) *net.TCPConn {
	t.Helper()
	return dialWith(t, net.Dialer{}, l, first)
}

func dialWith(t *testing.T, d net.Dialer, l *Listener, first string) *net.TCPConn {
	t.Helper()
	c, err := d.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	_, err = c.Write([]byte(first))
	require.NoError(t, err)
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	return c.(*net.TCPConn)
}

// accept returns the next connection, which the test's end discards.
func accept(t *testing.T, l *Listener) *handshake.Connection {
	t.Helper()
	in, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(in.Discard)
	return in
}

// accepting calls Accept, and returns when it waits, or has returned already.
func accepting(t *testing.T, l *Listener) <-chan *handshake.Connection {
	t.Helper()
	came := make(chan *handshake.Connection, 1)
	go func() {
		in, err := l.Accept()
		assert.NoError(t, err)
		came <- in
	}()
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.waiting == 1 && !l.held || len(came) == 1
	}, time.Minute, time.Millisecond)
	return came
}

// fake is a listener of pipes, which are plain, and of errors.
type fake struct {
	next   chan any // net.Conn or error
	closed chan struct{}
}

func newFake() *fake { return &fake{next: make(chan any), closed: make(chan struct{})} }

func (f *fake) Accept() (net.Conn, error) {
	select {
	case next := <-f.next:
		if err, ok := next.(error); ok {
			return nil, err
		}
		return next.(net.Conn), nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

func (f *fake) Close() error   { close(f.closed); return errors.New("closed the fake") }
func (f *fake) Addr() net.Addr { return &net.TCPAddr{} }

func TestCloseEndsAccept(t *testing.T) {
	l := New(newFake(), testConfig())
	done := make(chan error)
	go func() {
		_, err := l.Accept()
		done <- err
	}()
	assert.EqualError(t, l.Close(), "closed the fake")
	assert.ErrorIs(t, <-done, net.ErrClosed)
}

func TestCloseClosesWhatWasNotAccepted(t *testing.T) {
	l := listenFor(t, testConfig(), 8, after(func(t *times) { t.acceptGrace, t.closeGrace = 10*time.Millisecond, 20*time.Millisecond }))
	ready := dial(t, l, "GET")
	awaitReady(l, 1)
	silent, half := dial(t, l, ""), dial(t, l, "MPA ID")
	l.Close()
	for _, c := range []*net.TCPConn{ready, silent, half} {
		_, err := c.Read(make([]byte, 1))
		assert.Error(t, err)
		assert.False(t, timedOut(err), "%v", err)
	}
}

func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// awaitReady waits until n connections wait for Accept.
func awaitReady(l *Listener, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.ready < n {
		l.changed.Wait(&l.mu)
	}
}

// underway returns the handshakes that are under way. Called with l.mu held.
func underway(l *Listener) (all []*arrival) {
	for _, a := range l.queue {
		if a.up == nil {
			all = append(all, a)
		}
	}
	return all
}

// TestDeadlineByTheMonotonicClock, whatever time the program gives: if the machine's other clock was set
// back, Accept would find that its deadline has not passed when the alarm rings.
func TestDeadlineByTheMonotonicClock(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := New(ln, testConfig())
	defer l.Close()
	at := time.Now().Add(time.Hour)
	require.NoError(t, l.SetDeadline(at.Round(0)))
	l.mu.Lock()
	assert.NotEqual(t, l.deadline.Round(0), l.deadline)
	assert.WithinDuration(t, at, l.deadline, 30*time.Minute)
	l.mu.Unlock()
	require.NoError(t, l.SetDeadline(time.Unix(1<<40, 0)))
	l.mu.Lock()
	assert.False(t, l.lateLocked())
	l.mu.Unlock()
}
