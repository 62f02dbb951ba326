package listener

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
		server, client := plainPipe()
		defer client.Close()
		f.next <- server
		synctest.Wait()
		full := &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		f.next <- full // no Accept waits, and the next one tries again
		synctest.Wait()

		in, err := l.Accept()
		require.NoError(t, err, "what came before comes first")
		b := make([]byte, 1)
		_, err = in.Conn.Read(b)
		require.NoError(t, err)
		assert.Equal(t, "X", string(b))
		in.Discard()
		for range 2 {
			go func() {
				time.Sleep(time.Millisecond)
				f.next <- full
			}()
			_, err = l.Accept()
			assert.Equal(t, full, err)
		}
		odd := errors.New("a filter says no")
		for range 3 {
			f.next <- odd
			_, err = l.Accept()
			assert.Equal(t, odd, err)
		}
		server, client = plainPipe()
		defer client.Close()
		f.next <- server
		in, err = l.Accept()
		require.NoError(t, err)
		in.Discard()
	})
}

// TestAcceptingWaitsAfterAnError: while no descriptor is free, a listener whose program does not call
// Accept must not try again and again.
func TestAcceptingWaitsAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := New(f, testConfig())
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
		synctest.Wait()
		f.next <- syscall.EMFILE
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
		f.next <- server
		synctest.Wait()
		f.next <- net.ErrClosed
		synctest.Wait()

		in, err := l.Accept()
		require.NoError(t, err)
		in.Discard()
		for range 2 {
			_, err = l.Accept()
			assert.Equal(t, net.ErrClosed, err)
		}
	})
}

func TestAcceptingStopsAtAFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := New(f, testConfig())
		defer l.Close()
		offer := func() bool {
			server, client := plainPipe()
			synctest.Wait()
			select {
			case f.next <- server:
				return true
			default:
				server.Close()
				client.Close()
				return false
			}
		}
		for range maxAhead {
			require.True(t, offer())
		}
		// One more had been asked for while the queue was not full.
		for offer() {
		}
		l.mu.Lock()
		assert.GreaterOrEqual(t, l.ready, maxAhead)
		assert.LessOrEqual(t, l.ready, maxAhead+1)
		l.mu.Unlock()

		for range 2 {
			in, err := l.Accept()
			require.NoError(t, err)
			in.Discard()
		}
		assert.True(t, offer())
	})
}

func TestCloseEndsAPauseAndAFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l := New(f, testConfig())
		f.next <- syscall.EMFILE
		start := time.Now()
		l.Close()
		assert.Zero(t, time.Since(start))
	})
}

func TestOldestSilentClientGivesWay(t *testing.T) {
	for _, sdpOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("sdpOnly %t", sdpOnly), func(t *testing.T) {
			cfg := testConfig()
			cfg.SDPOnly = sdpOnly
			// One that has talked does not give way before those that have not.
			l := listenFor(t, cfg, 3, after(func(t *times) { t.silent, t.patience = 10*time.Millisecond, time.Hour }))
			talking := dial(t, l, handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello()))
			handshaketest.ReadReply(t, talking)
			silent, dribbling := dial(t, l, ""), dial(t, l, "MPA")
			awaitUnderway(t, l, 3)
			good := dial(t, l, handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello()))
			handshaketest.ReadReply(t, good)
			_, err := silent.Read(make([]byte, 1))
			assert.Error(t, err)
			assert.False(t, timedOut(err))
			l.mu.Lock()
			assert.Len(t, underway(l), 3)
			assert.Equal(t, dribbling.LocalAddr(), underway(l)[1].conn.RemoteAddr())
			l.mu.Unlock()
		})
	}
}

// TestTalkersAreKept has clients that have sent their Request, and then nothing, in all
// places: accepting stops. After a time that no honest client takes, one is closed.
func TestTalkersAreKept(t *testing.T) {
	const patience = 50 * time.Millisecond
	l := listenFor(t, testConfig(), 2, after(func(t *times) { t.patience = patience }))
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
// have all the places several times over. Each gives its place to the next one, and a good client is answered.
func TestGoodClientInAFlood(t *testing.T) {
	whole := handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello())
	for _, sdpOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("sdpOnly %t", sdpOnly), func(t *testing.T) {
			cfg := testConfig()
			cfg.SDPOnly = sdpOnly
			l := listenFor(t, cfg, 4, after(func(t *times) { t.silent, t.patience = time.Millisecond, 2*time.Millisecond }))
			var program sync.WaitGroup
			program.Go(func() {
				for {
					in, err := l.Accept()
					if err != nil {
						return
					}
					in.Discard()
				}
			})
			for i := range 24 {
				c := dial(t, l, []string{"", "M", "MPA ID Req", whole}[i%4])
				if i%4 == 2 {
					c.Close()
				}
			}
			handshaketest.ReadReply(t, dial(t, l, whole))
			l.Close()
			program.Wait()
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
