package sdp

import (
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/local"
)

// TestNetworkSDPMeetsAtOnce: the first exchanges are in shared memory.
func TestNetworkSDPMeetsAtOnce(t *testing.T) {
	for _, network := range []string{"sdp", "sdp4"} {
		c, s := localPair(t, network, nil)
		assert.True(t, met(c))
		_, err := s.carrier.(*local.Conn).TryMeet() // its turn may not have come
		require.NoError(t, err)
		assert.True(t, met(s))
		if lines := intoRing(t, c, s); !restless {
			assert.Less(t, lines, 16, "exchanges, after which any connection moves")
		}
	}
}

// TestNetworkSDPSaysNothing to a server of package net, and fails.
func TestNetworkSDPSaysNothing(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	for name, config := range map[string]*Config{
		"defaults": {ReplyTimeout: 50 * time.Millisecond},
		"shm":      {ReplyTimeout: 50 * time.Millisecond, Devices: []string{"shm"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(devicesVariable, "")
			got := make(chan string, 1)
			go func() {
				s, err := ln.Accept()
				if err != nil {
					close(got)
					return
				}
				defer s.Close()
				b, _ := io.ReadAll(s)
				got <- string(b)
			}()
			_, err := (&Dialer{Config: config}).Dial("sdp", ln.Addr().String())
			var not *NotSDPError
			require.ErrorAs(t, err, &not)
			assert.Equal(t, ln.Addr().String(), not.Addr.String())
			var op *net.OpError
			require.ErrorAs(t, err, &op)
			assert.Equal(t, "sdp", op.Net)
			assert.Equal(t, "dial", op.Op)
			assert.ErrorContains(t, err, "peer at "+ln.Addr().String()+" does not speak SDP: peer does not share memory")
			assert.Empty(t, <-got)
		})
	}
}

// TestMeetingEndsWithTheContext of the Dial.
func TestMeetingEndsWithTheContext(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := (&Dialer{Config: overSHM(nil)}).DialContext(ctx, "sdp", ln.Addr().String())
		done <- err
	}()
	s, err := ln.Accept()
	require.NoError(t, err)
	defer s.Close()
	cancel()
	err = <-done
	assert.ErrorIs(t, err, context.Canceled)
	assert.IsType(t, (*net.OpError)(nil), err)
}

// TestListenerMeetsBesidePlainClients: on network tcp it serves both, and one that clients may ask does, too.
func TestListenerMeetsBesidePlainClients(t *testing.T) {
	for name, config := range map[string]*Config{
		"tcp":               overSHM(nil),
		"clients may ask":   {Devices: []string{"shm", "iwarp"}, Probe: loopback, HandshakeTimeout: time.Minute},
		"clients that wait": overSHM(&Config{PeerUIDs: []int{12345}}),
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := (&ListenConfig{Config: config}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			echo(t, ln)
			for range 3 {
				c, err := (&Dialer{Config: overSHM(nil)}).Dial("sdp", ln.Addr().String())
				require.NoError(t, err)
				assert.True(t, met(c.(*Conn)))
				checkEcho(t, c)
				plain, err := net.Dial("tcp", ln.Addr().String())
				require.NoError(t, err)
				checkEcho(t, plain)
			}
		})
	}
}

// TestServerOfAPlainClient: the connection is a Conn on TCP, which has what the client has sent.
func TestServerOfAPlainClient(t *testing.T) {
	a, b := rawPair(t)
	defer a.Close()
	_, err := a.Write([]byte("hello"))
	require.NoError(t, err)
	c, err := Server(context.Background(), b, overSHM(nil))
	require.NoError(t, err)
	defer c.Close()
	requireTCP(t, c)
	got := make([]byte, 5)
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(got))
	sameBytes(t, c, a, []byte("and back"))
}

// TestServerOfAClientThatMoves: Server, which has tried to meet the client until that wrote, leaves nothing behind that
// looks for it.
func TestServerOfAClientThatMoves(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c, b, err := bothEnds(ln, func(address string) (net.Conn, error) { return (&Dialer{Config: overSHM(nil)}).Dial("tcp", address) })
	require.NoError(t, err)
	defer c.Close()
	served := make(chan net.Conn, 1)
	go func() {
		s, err := Server(context.Background(), b, overSHM(nil))
		assert.NoError(t, err)
		served <- s
	}()
	require.Eventually(t, func() bool { return waitsIn("handshake.(*Incoming).look", "handshake.sleep") }, soon, time.Millisecond)
	_, err = c.Write([]byte("hello"))
	require.NoError(t, err)
	s := <-served
	require.IsType(t, (*Conn)(nil), s)
	defer s.Close()
	_, err = io.ReadFull(s, make([]byte, 5))
	require.NoError(t, err)
	intoRing(t, c.(*Conn), s.(*Conn))
}

// TestClientAndServerMeet on connections that the program has made.
func TestClientAndServerMeet(t *testing.T) {
	a, b := rawPair(t)
	served := make(chan net.Conn, 1)
	go func() {
		c, err := Server(context.Background(), b, overSHM(nil))
		assert.NoError(t, err)
		served <- c
	}()
	c, err := Client(context.Background(), a, overSHM(nil))
	require.NoError(t, err)
	defer c.Close()
	s := <-served
	require.IsType(t, (*Conn)(nil), s)
	defer s.Close()
	assert.True(t, met(c))
	intoRing(t, c, s.(*Conn))
}

// TestServerSpeaksFirst on connections that cannot move: neither end waits for the other.
func TestServerSpeaksFirst(t *testing.T) {
	bound := func(_, _ string, c syscall.RawConn) (err error) {
		c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), "lo") })
		return err
	}
	multipath := new(net.Dialer)
	multipath.SetMultipathTCP(true)
	plainListen := func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }
	for _, v := range []struct {
		name   string
		listen func() (net.Listener, error)
		late   bool // the listener is made after the client has connected
		dialer *net.Dialer
	}{
		{"a listener in a wrapper", func() (net.Listener, error) {
			ln, err := plainListen()
			return bareListener{ln}, err
		}, false, nil},
		{"a listener that was connected to before", plainListen, true, nil},
		{"a listener on a device", func() (net.Listener, error) {
			lc := net.ListenConfig{Control: bound}
			return lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
		}, false, nil},
		{"a dialler on a device", plainListen, false, &net.Dialer{Control: bound}},
		{"a dialler of multipath TCP", plainListen, false, multipath},
	} {
		t.Run(v.name, func(t *testing.T) {
			below, err := v.listen()
			if err != nil {
				t.Skip("missing: a system that has such a listener: ", err)
			}
			d := Dialer{NetDialer: v.dialer, Config: overSHM(nil)}
			var c net.Conn
			dial := func() {
				if c, err = d.Dial("tcp", below.Addr().String()); err != nil {
					t.Skip("missing: a system that has such a socket: ", err)
				}
			}
			if v.late {
				dial()
			}
			ln, err := NewListener(below, overSHM(nil))
			require.NoError(t, err)
			defer ln.Close()
			go func() {
				s, err := ln.Accept()
				if assert.NoError(t, err) {
					s.Write([]byte("220 ready"))
					io.Copy(s, s)
					s.Close()
				}
			}()
			if !v.late {
				dial()
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(soon))
			b := make([]byte, 9)
			_, err = io.ReadFull(c, b)
			require.NoError(t, err)
			assert.Equal(t, "220 ready", string(b))
			for range 50 {
				_, err := c.Write(b)
				require.NoError(t, err)
				_, err = io.ReadFull(c, b)
				require.NoError(t, err)
			}
			if !v.late { // the sockets cannot
				assert.Zero(t, c.(*Conn).Stats().Moves)
			}
		})
	}
}
