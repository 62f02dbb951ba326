package handshake

import (
	"context"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake/handshaketest"
	"github.com/gosdp/gosdp/rdma/iwarp/mpa"
)

// first returns what the bytes mean that have arrived on conn. It consumes nothing, and does not block.
func first(conn *net.TCPConn) (v verdict) {
	if rc, err := conn.SyscallConn(); err == nil {
		rc.Control(func(fd uintptr) { v = peek(fd, make([]byte, mpa.KeyLen)) })
	}
	return v
}

func isSDP(ctx context.Context, c net.Conn) bool {
	v, _ := speaks(ctx, c)
	return v == isMPA
}

func TestJudge(t *testing.T) {
	for n := range mpa.KeyLen {
		assert.Equal(t, undecided, judge([]byte(mpa.RequestKey[:n])))
		assert.Equal(t, isPlain, judge([]byte(mpa.RequestKey[:n]+"\x00")))
	}
	assert.Equal(t, isMPA, judge([]byte(mpa.RequestKey)))
	assert.Equal(t, isMPA, judge([]byte(mpa.RequestKey+"\x00")))
	assert.Equal(t, isPlain, judge([]byte("MPA ID Rep Frame")))
	assert.Equal(t, isPlain, judge([]byte("GET / HTTP/1.1\r\n")))
}

// TestLookConsumesNothing sends the key in pieces, each of which wakes the look.
func TestLookConsumesNothing(t *testing.T) {
	server, client := handshaketest.TCPPair(t)
	sent := mpa.RequestKey + "and more"
	done := make(chan bool)
	go func() { done <- isSDP(t.Context(), server) }()
	for i := range len(sent) {
		client.Write([]byte(sent[i : i+1]))
		runtime.Gosched()
	}
	assert.True(t, <-done)
	client.CloseWrite()
	server.SetReadDeadline(time.Now().Add(time.Minute))
	got, err := io.ReadAll(server)
	assert.NoError(t, err)
	assert.Equal(t, sent, string(got))
}

// TestLookDecidesAtOnce has nothing but a decision end it.
func TestLookDecidesAtOnce(t *testing.T) {
	for _, v := range []struct {
		name string
		do   func(client *net.TCPConn)
	}{
		{"another byte", func(c *net.TCPConn) { c.Write([]byte("X")) }},
		{"another byte after a prefix", func(c *net.TCPConn) { c.Write([]byte("MPA ")); c.Write([]byte("X")) }},
		{"an end", func(c *net.TCPConn) { c.Close() }},
		{"a reset", func(c *net.TCPConn) { c.SetLinger(0); c.Close() }},
		{"an end after a prefix", func(c *net.TCPConn) {
			if runtime.GOOS != "linux" {
				c.Write([]byte("X")) // only there it can be seen
			}
			c.Write([]byte("MPA "))
			c.CloseWrite()
		}},
	} {
		t.Run(v.name, func(t *testing.T) {
			server, client := handshaketest.TCPPair(t)
			go v.do(client)
			assert.False(t, isSDP(context.Background(), server))
		})
	}
}

func TestLookEndsWithItsTime(t *testing.T) {
	server, client := handshaketest.TCPPair(t)
	client.Write([]byte("MPA ID"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	assert.False(t, isSDP(ctx, server))

	client.Write([]byte("!"))
	b := make([]byte, 8)
	n, err := io.ReadFull(server, b[:7])
	assert.NoError(t, err, "the deadline is gone")
	assert.Equal(t, "MPA ID!", string(b[:n]))
}

// TestLookFindsWhatCameInTime has a machine so busy that the time is over before
// the first look.
func TestLookFindsWhatCameInTime(t *testing.T) {
	server, client := handshaketest.TCPPair(t)
	client.Write([]byte(mpa.RequestKey))
	require.True(t, isSDP(t.Context(), server), "it is here")
	late, cancel := context.WithCancel(t.Context())
	cancel()
	assert.True(t, isSDP(late, server))
}

// TestLookAtWhatIsNoSocket has to consume what it looks at, and gives it back.
func TestLookAtWhatIsNoSocket(t *testing.T) {
	for _, v := range []struct {
		name, sent string
		mpa        bool
	}{
		{"a request", mpa.RequestKey + "and more", true},
		{"another protocol", "GET / HTTP/1.1", false},
		{"a prefix", mpa.RequestKey[:5], false},
		{"nothing", "", false},
	} {
		t.Run(v.name, func(t *testing.T) {
			server, client := net.Pipe()
			defer server.Close()
			go func() {
				client.Write([]byte(v.sent))
				client.Close()
			}()
			says, instead := speaks(t.Context(), server)
			assert.Equal(t, v.mpa, says == isMPA)
			got, err := io.ReadAll(instead)
			assert.NoError(t, err)
			assert.Equal(t, v.sent, string(got))
		})
	}
}

// secured is a connection with a handshake of its own, during which a deadline
// would break it, as it breaks TLS.
type secured struct {
	net.Conn
	shaking, done chan struct{}
}

func (s *secured) HandshakeContext(context.Context) error {
	close(s.shaking)
	<-s.done
	return nil
}

// TestLookWaitsForAHandshakeBelow: the time to look begins after it.
func TestLookWaitsForAHandshakeBelow(t *testing.T) {
	server, client := handshaketest.TCPPair(t)
	cfg := testConfig()
	s := &secured{Conn: server, shaking: make(chan struct{}), done: make(chan struct{})}
	failed := make(chan error)
	go func() {
		_, err := Serve(t.Context(), s, cfg)
		failed <- err
	}()
	<-s.shaking
	client.Write([]byte(handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello())))
	require.Eventually(t, func() bool { return first(server) == isMPA }, time.Minute, time.Millisecond)
	close(s.done)
	handshaketest.ReadReply(t, client)
	client.Close() // without a decision
	assert.ErrorContains(t, <-failed, "read client's decision")
}

// TestLookTakesNoError from the program: a reset of a client that has sent nothing. One that has sent
// a Request before is still one of SDP.
func TestLookTakesNoError(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("missing: Linux, where a program can see that nothing but an error has arrived")
	}
	for _, sent := range []string{"", handshaketest.Request(t, handshaketest.Offers(), handshaketest.Hello())} {
		server, client := handshaketest.TCPPair(t)
		_, err := client.Write([]byte(sent))
		require.NoError(t, err)
		require.NoError(t, client.SetLinger(0))
		require.NoError(t, client.Close())
		want := isPlain
		if sent != "" {
			want = isMPA
		}
		require.Eventually(t, func() bool { return first(server) == want }, time.Minute, time.Millisecond)
		if sent == "" {
			_, err = server.Read(make([]byte, 1))
			assert.ErrorIs(t, err, syscall.ECONNRESET)
		}
	}
}
