package listener

import (
	"errors"
	"fmt"
	"io"
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
			l := listen(t, cfg, 3)
			talking := dial(t, l, handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello()))
			handshaketest.ReadReply(t, talking)
			silent, dribbling := dial(t, l, ""), dial(t, l, "MPA")
			awaitUnderway(t, l, 3)
			time.Sleep(2 * silentPatience) // or the one that has talked might be over its time, and it alone

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
	l := listen(t, testConfig(), 2)
	var talking []*net.TCPConn
	for range 2 {
		c := dial(t, l, handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello()))
		handshaketest.ReadReply(t, c)
		talking = append(talking, c)
	}
	start := time.Now()
	handshaketest.ReadReply(t, dial(t, l, handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello())))
	assert.Greater(t, time.Since(start), time.Second)
	_, err := talking[0].Read(make([]byte, 1))
	assert.Error(t, err, "the oldest one is closed")
}

// TestFloodDoesNotDelayPlainClients for long: those who flood have to give way, and the order
// is kept only as long as that is of use. Up to three floods, because a busy machine adds to what they take.
func TestFloodDoesNotDelayPlainClients(t *testing.T) {
	for name, first := range map[string]string{"silent": "", "a key and no more": "MPA ID Req Frame"} {
		t.Run(name, func(t *testing.T) {
			const most = slow * time.Second
			fastest := plainInAFlood(t, first)
			for tries := 1; tries < 3 && fastest >= most; tries++ {
				fastest = min(fastest, plainInAFlood(t, first))
			}
			t.Logf("20 plain clients were served within %v", fastest)
			assert.Less(t, fastest, most)
		})
	}
}

// plainInAFlood returns how long 20 plain clients take, one after the other, while others send
// nothing but first.
func plainInAFlood(t *testing.T, first string) time.Duration {
	l := listen(t, testConfig(), 16)
	defer l.Close()
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			in.Conn.Close()
		}
	}()
	for range 64 {
		dial(t, l, first)
	}
	start := time.Now()
	for range 20 {
		dial(t, l, first)
		_, err := dialPlain(t, l, "").Read(make([]byte, 1))
		assert.Equal(t, io.EOF, err)
	}
	return time.Since(start)
}

// TestFloodDoesNotDelayAGoodClient has more clients than there are places be
// silent, begin the key, close after a part of it, or not decide.
func TestFloodDoesNotDelayAGoodClient(t *testing.T) {
	whole := handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello())
	// Held up by those that do not give way it would wait a minute. A busy machine takes seconds.
	const most = 15 * time.Second
	for _, sdpOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("sdpOnly %t", sdpOnly), func(t *testing.T) {
			took := answerInAFlood(t, whole, sdpOnly)
			t.Logf("a good client was answered within %v", took)
			assert.Less(t, took, most)
		})
	}
}

// answerInAFlood returns how long a client waits for its Reply after 2000 that
// say nothing, too little or all, and do no more.
func answerInAFlood(t *testing.T, whole string, sdpOnly bool) time.Duration {
	cfg := testConfig()
	cfg.SDPOnly = sdpOnly
	l := listen(t, cfg, maxPlaces)
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
	for i := range 2000 {
		c := dial(t, l, []string{"", "M", "MPA ID Req", whole}[i%4])
		if i%4 == 2 {
			c.Close()
		}
	}
	start := time.Now()
	handshaketest.ReadReply(t, dial(t, l, whole))
	took := time.Since(start)
	l.Close()
	program.Wait()
	return took
}

// awaitUnderway waits until n handshakes are under way.
func awaitUnderway(t *testing.T, l *Listener, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(underway(l)) == n
	}, 10*time.Second, time.Millisecond)
}
