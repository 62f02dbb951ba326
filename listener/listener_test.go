package listener

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plainClient is the address of clients that are not asked.
var plainClient = netip.MustParseAddr("127.0.0.2")

// testConfig has times that no test reaches.
func testConfig() handshake.Config {
	return handshake.Config{
		Logger:           slog.New(slog.DiscardHandler),
		Devices:          []wire.Device{wire.DeviceIWARP},
		MayAsk:           func(_, remote netip.Addr) bool { return remote != plainClient },
		HandshakeTimeout: time.Hour,
		StepUpTimeout:    time.Hour,
		Hello:            wire.Hello{Bufs: 64, MaxAdverts: 4, LocalRcvSz: 4096, IRD: 8, ORD: 16},
	}
}

// idle starts a Listener on loopback with so many slots. The test calls Accept.
func idle(t *testing.T, cfg handshake.Config, slots int, limits limits) *Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return start(t, ln, cfg, slots, limits)
}

func start(t *testing.T, ln net.Listener, cfg handshake.Config, slots int, limits limits) *Listener {
	t.Helper()
	l := prepare(ln, cfg, slots)
	l.limits = limits
	l.start()
	t.Cleanup(func() { l.Close() })
	return l
}

// program is a Listener whose program always waits in Accept.
type program struct {
	*Listener
	came chan *handshake.Connection
}

// listen starts such a Listener on loopback.
func listen(t *testing.T, cfg handshake.Config, slots int) *program {
	t.Helper()
	return listenFor(t, cfg, slots, defaultLimits)
}

// listenFor is listen with other times.
func listenFor(t *testing.T, cfg handshake.Config, slots int, limits limits) *program {
	t.Helper()
	return run(t, idle(t, cfg, slots, limits))
}

// run accepts from l until it is closed.
func run(t *testing.T, l *Listener) *program {
	p := &program{l, make(chan *handshake.Connection, 64)}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				assert.ErrorIs(t, err, net.ErrClosed)
				close(p.came)
				return
			}
			p.came <- in
		}
	})
	t.Cleanup(func() {
		l.Close()
		accepting.Wait()
		for in := range p.came {
			in.Discard()
		}
	})
	return p
}

// accept returns the next connection, which the test's end discards.
func (p *program) accept(t *testing.T) *handshake.Connection {
	t.Helper()
	select {
	case in := <-p.came:
		require.NotNil(t, in)
		t.Cleanup(in.Discard)
		return in
	case <-time.After(time.Minute):
		require.Fail(t, "no connection")
		return nil
	}
}

// after returns defaultLimits with a change.
func after(change func(*limits)) limits {
	changed := defaultLimits
	change(&changed)
	return changed
}

// addressed is a listener that can be dialled.
type addressed interface{ Addr() net.Addr }

// dial connects as a client that is asked, and sends.
func dial(t *testing.T, l addressed, first string) *net.TCPConn {
	t.Helper()
	return dialWith(t, net.Dialer{}, l, first)
}

// dialPlain connects as a client that is not asked, and sends.
func dialPlain(t *testing.T, l addressed, first string) *net.TCPConn {
	t.Helper()
	if runtime.GOOS == "darwin" {
		t.Skip("missing: a second loopback address")
	}
	return dialWith(t, net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(plainClient, 0))}, l, first)
}

func dialWith(t *testing.T, d net.Dialer, l addressed, first string) *net.TCPConn {
	t.Helper()
	c, err := d.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	_, err = c.Write([]byte(first))
	require.NoError(t, err)
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	return c.(*net.TCPConn)
}

// startAccept calls Accept, and returns when it waits, or has returned already.
func startAccept(t *testing.T, l *Listener) <-chan *handshake.Connection {
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
		return l.waiting == 1 && l.state == accepting || len(came) == 1
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
	l, ready, silent := backlog(t, after(func(t *limits) { t.acceptGrace, t.closeGrace = 10*time.Millisecond, 20*time.Millisecond }), 2)
	_, err := silent[1].Write([]byte("MPA ID"))
	require.NoError(t, err)
	l.Close()
	for _, c := range append(silent, ready) {
		_, err := c.Read(make([]byte, 1))
		assert.Error(t, err)
		assert.False(t, timedOut(err), "%v", err)
	}
}

func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// backlog returns a Listener whose program does not wait in Accept, and clients that it has accepted: one
// whose connection is set up, and some that are silent.
func backlog(t *testing.T, limits limits, n int) (l *Listener, ready *net.TCPConn, silent []*net.TCPConn) {
	t.Helper()
	l = idle(t, testConfig(), 8, limits)
	came := startAccept(t, l)
	first := dial(t, l, "")
	ready = dial(t, l, "")
	for range n {
		silent = append(silent, dial(t, l, ""))
	}
	awaitUnderway(t, l, 2+n)
	_, err := first.Write([]byte("GET"))
	require.NoError(t, err)
	(<-came).Discard()
	_, err = ready.Write([]byte("GET"))
	require.NoError(t, err)
	awaitReady(l, 1)
	return l, ready, silent
}

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
