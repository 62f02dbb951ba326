package listener

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake"
	"github.com/gosdp/gosdp/internal/handshake/handshaketest"
)

// plainPipe is a connection that is no socket, whose client shows at once that it
// does not speak SDP.
func plainPipe() (server, client net.Conn) {
	server, client = net.Pipe()
	go client.Write([]byte("X"))
	return server, client
}

// TestErrorsEndOneAccept each, whatever they are, and the next one goes on.
func TestErrorsEndOneAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := New(f, testConfig())
		defer l.Close()
		for range 2 {
			for _, want := range []error{
				&net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)},
				errors.New("a filter says no"),
			} {
				go func() { f.next <- want }()
				_, err := l.Accept()
				assert.Equal(t, want, err)
			}
			server, client := plainPipe()
			defer client.Close()
			go func() { f.next <- server }()
			in, err := l.Accept()
			require.NoError(t, err)
			b := make([]byte, 1)
			_, err = in.Conn.Read(b)
			require.NoError(t, err)
			assert.Equal(t, "X", string(b))
			in.Discard()
		}
	})
}

// TestShortageOfDescriptors: the program is told, and a client that has said nothing for long gives up its descriptor.
func TestShortageOfDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		cfg := testConfig()
		cfg.SDPOnly = true // or nothing is read from a pipe
		l := New(f, cfg)
		defer l.Close()
		silent := func() net.Conn {
			server, client := net.Pipe()
			f.next <- server
			synctest.Wait()
			return client
		}
		accepted := make(chan error, 1)
		go func() {
			_, err := l.Accept()
			accepted <- err
		}()
		old := silent()
		defer old.Close()
		time.Sleep(defaultLimits.silent)
		young := silent()
		defer young.Close()
		f.next <- syscall.EMFILE
		assert.Equal(t, syscall.EMFILE, <-accepted)
		synctest.Wait()
		_, err := old.Write([]byte("x"))
		assert.ErrorIs(t, err, io.ErrClosedPipe)
		require.NoError(t, young.SetDeadline(past))
		_, err = young.Write([]byte("x"))
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded, "it is there")
	})
}

// impatient returns a Listener that accepts from f although no Accept waits any more: f is the program's
// own, and its Accept cannot be ended.
func impatient(t *testing.T, f *fake) *Listener {
	t.Helper()
	l := New(f, testConfig())
	require.NoError(t, l.SetDeadline(time.Now().Add(time.Second)))
	_, err := l.Accept()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, l.SetDeadline(time.Time{}))
	return l
}

// TestAcceptingWaitsAfterAnError: while no descriptor is free, a listener whose program does not call
// Accept must not try again and again. The next Accept does, because one may be free by then.
func TestAcceptingWaitsAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := impatient(t, f)
		defer l.Close()
		f.next <- syscall.EMFILE
		synctest.Wait()
		select {
		case f.next <- syscall.EMFILE:
			assert.Fail(t, "it accepts before the error is taken")
		default:
		}
		go func() { f.next <- syscall.ENFILE }()
		_, err := l.Accept()
		assert.Equal(t, syscall.ENFILE, err, "it has tried again")
	})
}

// TestWhatIsAcceptedForNobody is the next Accept's.
func TestWhatIsAcceptedForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := impatient(t, f)
		defer l.Close()
		server, client := plainPipe()
		defer client.Close()
		f.next <- server
		synctest.Wait()
		in, err := l.Accept()
		require.NoError(t, err)
		in.Discard()
	})
}

// TestListenerBelowIsClosed by the program: that ends the listener, after what came
// before.
func TestListenerBelowIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := New(f, testConfig())
		defer l.Close()
		server, client := plainPipe()
		defer client.Close()
		go func() {
			f.next <- server
			f.next <- net.ErrClosed
		}()
		in, err := l.Accept()
		require.NoError(t, err)
		in.Discard()
		for range 2 {
			_, err = l.Accept()
			assert.Equal(t, net.ErrClosed, err)
		}
	})
}

func TestCloseEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := impatient(t, f)
		f.next <- syscall.EMFILE
		start := time.Now()
		l.Close()
		assert.Zero(t, time.Since(start))
	})
}

// TestTalkersAreKept has clients that have sent their Request, and then nothing, in all
// slots: accepting stops. After a time that no honest client takes, one is closed.
func TestTalkersAreKept(t *testing.T) {
	const patience = 50 * time.Millisecond
	l := listenFor(t, testConfig(), 2, after(func(t *limits) { t.patience = patience }))
	start := time.Now()
	var talking []*net.TCPConn
	for range 2 {
		c := dial(t, l, handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello()))
		handshaketest.ReadReply(t, c)
		talking = append(talking, c)
	}
	handshaketest.ReadReply(t, dial(t, l, handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello())))
	assert.GreaterOrEqual(t, time.Since(start), patience)
	_, err := talking[0].Read(make([]byte, 1))
	assert.Error(t, err, "the oldest one is closed")
}

// TestGoodClientInAFlood: clients that are silent, begin the key, close after a part of it, or do not decide
// have all the slots several times over. Each gives its slot to the next one, and a good client is answered.
func TestGoodClientInAFlood(t *testing.T) {
	whole := handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello())
	for _, sdpOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("sdpOnly %t", sdpOnly), func(t *testing.T) {
			cfg := testConfig()
			cfg.SDPOnly = sdpOnly
			l := listenFor(t, cfg, 4, after(func(t *limits) { t.silent, t.patience = time.Millisecond, 2*time.Millisecond }))
			for i := range 24 {
				c := dial(t, l, []string{"", "M", "MPA ID Req", whole}[i%4])
				if i%4 == 2 {
					c.Close()
				}
			}
			handshaketest.ReadReply(t, dial(t, l, whole))
		})
	}
}

// awaitUnderway waits until n handshakes are under way.
func awaitUnderway(t *testing.T, l *Listener, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(underway(l)) == n
	}, time.Minute, time.Millisecond)
}

// TestOneGivesWayAtATime: while a handshake is about to free its slot, no other client is reset.
func TestOneGivesWayAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.SDPOnly = true // or nothing is read from a pipe
		l := prepare(newFake(), cfg, 2)
		silent := func(ctx context.Context) *arrival {
			server, client := net.Pipe()
			t.Cleanup(func() { client.Close() })
			a := &arrival{Incoming: l.server.Accepted(server), conn: server, accepted: time.Now(), slot: true}
			l.slots <- struct{}{}
			l.queue = append(l.queue, a)
			l.workers.Go(func() { a.Run(ctx) })
			synctest.Wait()
			return a
		}
		ctx, cancel := context.WithCancel(t.Context())
		waits, ending := silent(t.Context()), silent(ctx)
		cancel()
		synctest.Wait()
		time.Sleep(l.limits.silent)
		require.Equal(t, handshake.Ended, ending.Progress().State)
		l.giveWay()
		assert.Equal(t, handshake.Waiting, waits.Progress().State)

		l.conclude(ending, nil, nil)
		l.giveWay()
		synctest.Wait()
		assert.Equal(t, handshake.Ended, waits.Progress().State)
		l.conclude(waits, nil, nil)
		l.workers.Wait()
	})
}
