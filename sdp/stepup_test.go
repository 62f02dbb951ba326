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

	"github.com/gosdp/gosdp/rdma"
	"github.com/gosdp/gosdp/rdma/iwarp"
	"github.com/gosdp/gosdp/wire"
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

// TestClientResumes is Client, which waits for the Reply and does not look for the
// answer in the channel.
func TestClientResumes(t *testing.T) {
	ln, config := keepingListener(t, "sdp")
	for range 5 {
		accepted := accept1(ln)
		tcp, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		c, err := Client(tcp, config)
		require.NoError(t, err)
		s := <-accepted
		require.NotNil(t, s)
		assert.Equal(t, 2, holds(t).areas, "the first connection's")
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

// TestResumeWithoutOffer is a server that resumes what nobody has offered, or that
// has not: the dial fails.
func TestResumeWithoutOffer(t *testing.T) {
	ln, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		request, err := iwarp.ReadRequest(c)
		if err != nil {
			return
		}
		private, _ := (&wire.Choice{Device: wire.DeviceSHM, Resume: true}).Append(nil)
		hello := ourHello(0)
		qp, err := request.Accept(iwarp.Config{}, hello.AppendHelloAck(private))
		if err == nil {
			qp.Wait(make([]rdma.Completion, 1))
			qp.Abort()
		}
	}()
	d := Dialer{Config: &Config{Devices: []string{"shm", "iwarp"}}}
	_, err = d.Dial("sdp", ln.Addr().String())
	assert.ErrorContains(t, err, "which we did not offer")
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

// TestFailedStepUpIsPlain: the client cannot open the channel, and there is no iwarp to
// stay on.
func TestFailedStepUpIsPlain(t *testing.T) {
	if _, ok := rdma.LookupDevice("shm"); !ok {
		t.Skip("there is no device shm")
	}
	lc := ListenConfig{Config: &Config{Devices: []string{"shm"}}}
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	d := Dialer{Config: &Config{Devices: []string{"shm"}, StepUpTimeout: 1}}
	for range 3 {
		accepted := accept1(ln)
		c, err := d.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		require.IsType(t, (*net.TCPConn)(nil), c)
		s := <-accepted
		require.IsType(t, (*net.TCPConn)(nil), s)
		assert.Equal(t, c.LocalAddr().String(), s.RemoteAddr().String(), "it is the same connection")
		go func() {
			s.Write([]byte("the server speaks first"))
			io.Copy(s, s)
			s.Close()
		}()
		_, err = c.Write([]byte(", and the client"))
		require.NoError(t, err)
		require.NoError(t, c.(*net.TCPConn).CloseWrite())
		c.SetDeadline(time.Now().Add(10 * time.Second))
		got, err := io.ReadAll(c)
		assert.NoError(t, err)
		assert.Equal(t, "the server speaks first, and the client", string(got))
		c.Close()
	}
	_, err = d.Dial("sdp", ln.Addr().String())
	assert.ErrorContains(t, err, "no RDMA device can be used: shm: ")
	only, err := lc.Listen(t.Context(), "sdp", "127.0.0.1:0")
	require.NoError(t, err)
	defer only.Close()
	accepted := accept1(only)
	c, err := d.Dial("tcp", only.Addr().String())
	require.NoError(t, err, "net.Dial would connect as well")
	_, err = c.Read(make([]byte, 1))
	assert.Error(t, err, "but nobody serves it")
	c.Close()
	only.Close()
	assert.Nil(t, <-accepted)
}
