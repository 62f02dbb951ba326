package sdp

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// echo serves what ln accepts until the test ends, which closes it.
func echo(t *testing.T, ln net.Listener) {
	t.Helper()
	var workers sync.WaitGroup
	workers.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				assert.ErrorIs(t, err, net.ErrClosed)
				return
			}
			workers.Go(func() {
				defer c.Close()
				io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		workers.Wait()
	})
}

func TestBothKindsOfClientOnOnePort(t *testing.T) {
	ln, err := askingListen()
	require.NoError(t, err)
	echo(t, ln)
	address := ln.Addr().String()
	require.IsType(t, &net.TCPAddr{}, ln.Addr())
	d := Dialer{Config: asking(nil)}

	for _, network := range []string{"tcp", "tcp4", "sdp", "sdp4"} {
		c, err := d.Dial(network, address)
		require.NoError(t, err)
		require.IsType(t, &Conn{}, c)
		assert.Equal(t, engineDevice, c.(*Conn).Device())
		assert.Equal(t, address, c.RemoteAddr().String())
		checkEcho(t, c)
	}
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	checkEcho(t, c)
}

func TestListenerOfSDPClosesTCP(t *testing.T) {
	ln, err := Listen("sdp", "127.0.0.1:0")
	require.NoError(t, err)
	echo(t, ln)
	plain, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer plain.Close()
	io.WriteString(plain, "hello\n")
	_, err = plain.Read(make([]byte, 1))
	assert.Error(t, err)

	c, err := Dial("sdp", ln.Addr().String())
	require.NoError(t, err)
	checkEcho(t, c)
}

// TestServerWithoutDevices is one of plain TCP.
func TestServerWithoutDevices(t *testing.T) {
	lc := ListenConfig{Config: &Config{Devices: []string{"tcp"}}}
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	echo(t, ln)
	address := ln.Addr().String()
	_, err = (&Dialer{Config: &Config{ReplyTimeout: 50 * time.Millisecond}}).Dial("sdp", address)
	var not *NotSDPError
	require.ErrorAs(t, err, &not)
	assert.Regexp(t, "peer at "+address+" does not speak SDP: |no SDP with peer at "+address+": ", err.Error()) // or its Request is answered
	for range 2 {
		c, err := Dial("tcp", address)
		require.NoError(t, err)
		requireTCP(t, c)
		checkEcho(t, c)
	}
}

// TestForwardedPort is a relay between two programs with SDP that knows nothing of it: what
// each of them sees at the other end is the relay.
func TestForwardedPort(t *testing.T) {
	ln, err := patientListen("tcp")
	require.NoError(t, err)
	echo(t, ln)
	address, dials := relayCounting(t, ln.Addr().String())
	for i := range int32(3) {
		c, err := Dial("tcp", address)
		require.NoError(t, err)
		requireTCP(t, c)
		checkEcho(t, c)
		assert.Equal(t, i+1, dials.Load())
	}
}

// TestWhereverItListens: a client meets the listener at each of its addresses.
func TestWhereverItListens(t *testing.T) {
	for _, v := range [][2]string{{"0.0.0.0:0", "127.0.0.1"}, {"0.0.0.0:0", "127.0.0.9"}, {":0", "127.0.0.1"}, {":0", "::1"}, {"[::1]:0", "::1"}, {"[::]:0", "localhost"}} {
		lc := ListenConfig{Config: patient}
		ln, err := lc.Listen(t.Context(), "sdp", v[0])
		require.NoError(t, err)
		echo(t, ln)
		_, port, err := net.SplitHostPort(ln.Addr().String())
		require.NoError(t, err)
		c, err := (&Dialer{Config: patient}).Dial("sdp", net.JoinHostPort(v[1], port))
		require.NoError(t, err)
		require.IsType(t, &Conn{}, c, "%v", v)
		checkEcho(t, c)
	}
}

// TestCRCOnOneHost is off unless one of the ends wants it.
func TestManyDialAtOnce(t *testing.T) {
	ln, err := askingListen()
	require.NoError(t, err)
	echo(t, ln)
	var dials sync.WaitGroup
	for i := range 100 {
		dials.Go(func() {
			d := Dialer{Config: asking(nil)}
			c, err := d.Dial([]string{"tcp", "sdp"}[i%2], ln.Addr().String())
			if assert.NoError(t, err) {
				assert.IsType(t, &Conn{}, c)
				checkEcho(t, c)
			}
		})
	}
	dials.Wait()
}

func TestListenerErrors(t *testing.T) {
	for _, network := range []string{"tcp", "sdp"} {
		ln, err := Listen(network, "127.0.0.1:0")
		require.NoError(t, err)
		_, err = Listen(network, ln.Addr().String())
		assert.EqualError(t, err, "listen "+network+" "+ln.Addr().String()+": bind: address already in use")
		require.NoError(t, ln.Close())
		_, err = ln.Accept()
		assert.ErrorIs(t, err, net.ErrClosed)
		assert.EqualError(t, err, "accept "+network+" "+ln.Addr().String()+": use of closed network connection")
		err = ln.Close()
		assert.ErrorIs(t, err, net.ErrClosed)
	}
}

// TestClosedListenerKeepsAccepted connections going.
func TestClosedListenerKeepsAccepted(t *testing.T) {
	ln, err := Listen("sdp", "127.0.0.1:0")
	require.NoError(t, err)
	c, s, err := bothEnds(ln, func(address string) (net.Conn, error) { return patientDial("sdp", address) })
	require.NoError(t, err)
	defer c.Close()
	defer s.Close()
	ln.Close()
	c.SetDeadline(time.Now().Add(soon))
	io.WriteString(c, "hello\n")
	b := make([]byte, 6)
	_, err = io.ReadFull(s, b)
	assert.NoError(t, err)
}
