package sdp

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
)

// TestStepsUpEachTime dials again and again, with no device to fall back on.
func TestStepsUpEachTime(t *testing.T) {
	rounds := 500
	if raceEnabled {
		rounds = 100
	}
	config := &Config{Devices: []string{"shm"}, StepUpTimeout: time.Minute, HandshakeTimeout: time.Minute, ReplyTimeout: time.Minute}
	lc := ListenConfig{Config: config}
	ln, err := lc.Listen(t.Context(), "tcp", "localhost:0")
	require.NoError(t, err)
	echo(t, ln)
	d := Dialer{Config: config}
	for range rounds {
		c, err := d.Dial("sdp", ln.Addr().String())
		require.NoError(t, err)
		assert.Equal(t, "shm", c.(*Conn).Device())
		checkEcho(t, c)
	}
}

// noAreas reports that the process has no shared memory.
func noAreas(t *testing.T) func() bool { return func() bool { return holds(t).areas == 0 } }

// keepingListener is one whose clients' channels are kept, when none of other tests
// are any more, and what to dial it with.
func keepingListener(t *testing.T, network string) (net.Listener, *Config) {
	t.Helper()
	require.Eventually(t, noAreas(t), 10*time.Second, 10*time.Millisecond, "other tests' are kept no longer")
	config := &Config{Devices: []string{"shm"}, StepUpTimeout: time.Minute, HandshakeTimeout: time.Minute, ReplyTimeout: time.Minute}
	lc := ListenConfig{Config: config}
	ln, err := lc.Listen(t.Context(), network, "localhost:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	return ln, config
}

// TestChannelsAreKept dials again and again: the memory is that of the first
// connections, and what each carries is its own. It goes when nobody dials.
func TestChannelsAreKept(t *testing.T) {
	const most = 4
	ln, config := keepingListener(t, "tcp")
	d := Dialer{Config: config}
	for i := range 100 {
		accepted := accept1(ln)
		c, err := d.Dial("sdp", ln.Addr().String())
		require.NoError(t, err)
		s := <-accepted
		require.NotNil(t, s)
		for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
			text := bytes.Repeat([]byte{byte(i)}, 1+i*101)
			go way[0].Write(text)
			got := make([]byte, len(text))
			_, err := io.ReadFull(way[1], got)
			require.NoError(t, err)
			require.Equal(t, text, got)
		}
		if i%2 == 0 {
			c, s = s, c
		}
		require.NoError(t, c.Close())
		_, err = s.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.NoError(t, s.Close())
		require.LessOrEqual(t, holds(t).areas, 2*most) // both ends are here
	}
	assert.NotZero(t, holds(t).areas)
	assert.Eventually(t, noAreas(t), 5*time.Second, 10*time.Millisecond)
}

// TestClientOpensAChannel is Client, which cannot dial again for an idle channel that the peer
// has not kept, and so offers a new one each time.
func TestClientOpensAChannel(t *testing.T) {
	ln, config := keepingListener(t, "sdp")
	for k := range 5 {
		accepted := accept1(ln)
		tcp, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		c, err := Client(tcp, config)
		require.NoError(t, err)
		s := <-accepted
		require.NotNil(t, s)
		assert.Equal(t, 2*(k+1), holds(t).areas, "its own, and those that are kept")
		_, err = s.Write([]byte("hello"))
		require.NoError(t, err)
		got := make([]byte, 5)
		_, err = io.ReadFull(c, got)
		require.NoError(t, err)
		assert.Equal(t, "hello", string(got))
		require.NoError(t, c.Close())
		require.NoError(t, s.Close())
	}
}

// accept1 accepts a connection beside the test.
func accept1(ln net.Listener) <-chan net.Conn {
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := ln.Accept()
		accepted <- c
	}()
	return accepted
}

func TestUnix(t *testing.T) {
	for _, device := range []string{"shm", "iwarp"} {
		t.Run(device, func(t *testing.T) {
			address := filepath.Join(t.TempDir(), "socket")
			config := &Config{Devices: []string{device}}
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				lc := ListenConfig{Config: config}
				ln, err := lc.Listen(t.Context(), "unix", address)
				if err != nil {
					return nil, nil, nil, err
				}
				defer ln.Close()
				accepted := accept1(ln)
				d := Dialer{Config: config}
				c, err := d.Dial("unix", address)
				if err != nil {
					return nil, nil, nil, err
				}
				s := <-accepted
				require.NotNil(t, s)
				assert.Equal(t, device, c.(*Conn).Device())
				assert.Equal(t, device, s.(*Conn).Device())
				assert.Equal(t, address, c.RemoteAddr().String())
				return c, s, func() {
					c.Close()
					s.Close()
				}, nil
			})
			assert.NoFileExists(t, address)
		})
	}
}

// TestUnixWithoutSDP at the one end or the other.
func TestUnixWithoutSDP(t *testing.T) {
	address := filepath.Join(t.TempDir(), "plain")
	ln, err := net.Listen("unix", address)
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 100)
				n, _ := c.Read(b)
				if string(b[:n]) == "hello" {
					c.Write([]byte("world"))
				}
			}()
		}
	}()
	c, err := Dial("unix", address)
	require.NoError(t, err)
	defer c.Close()
	require.IsType(t, (*net.UnixConn)(nil), c)
	_, err = c.Write([]byte("hello"))
	require.NoError(t, err)
	b := make([]byte, 5)
	_, err = c.Read(b)
	require.NoError(t, err)
	assert.Equal(t, "world", string(b))

	address = filepath.Join(t.TempDir(), "sdp")
	sdp, err := Listen("unix", address)
	require.NoError(t, err)
	defer sdp.Close()
	accepted := accept1(sdp)
	plain, err := net.Dial("unix", address)
	require.NoError(t, err)
	defer plain.Close()
	_, err = plain.Write([]byte("hello"))
	require.NoError(t, err)
	s := <-accepted
	defer s.Close()
	require.IsType(t, (*net.UnixConn)(nil), s)
	_, err = s.Read(b)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(b))
}
