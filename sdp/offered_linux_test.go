package sdp

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosdp/gosdp/wire"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dialsWithoutMemory has another process dial that can make no memory file, since its files may
// not be so long, and returns what it says of that.
func dialsWithoutMemory(t *testing.T, network, address, devices string) (said func() string) {
	t.Helper()
	t.Setenv(devicesVariable, devices)
	t.Setenv(shortFilesVariable, "1")
	child := peerCommand("dial " + network + " " + address)
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() {
		stdin.Close()
		finish(child)
	})
	return func() string {
		all, err := io.ReadAll(out)
		require.NoError(t, err)
		return string(all)
	}
}

// TestChannelThatIsNotTaken: the client cannot take the channel that it has offered, and
// there is no iwarp to go to. Both ends go on as plain TCP on the same connection.
func TestChannelThatIsNotTaken(t *testing.T) {
	lc := ListenConfig{Config: &Config{Devices: []string{"shm"}}}
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	accepted := accept1(ln)
	said := dialsWithoutMemory(t, "tcp", ln.Addr().String(), "shm")
	s := <-accepted
	require.IsType(t, (*net.TCPConn)(nil), s)
	go func() {
		io.Copy(s, struct{ io.Reader }{s})
		s.Close()
	}()
	assert.Equal(t, "hello over *net.TCPConn\n", said())

	said = dialsWithoutMemory(t, "sdp", ln.Addr().String(), "shm")
	assert.Contains(t, said(), "no RDMA device can be used: shm: shm: the limit on file sizes")

	only, err := lc.Listen(t.Context(), "sdp", "127.0.0.1:0")
	require.NoError(t, err)
	accepted = accept1(only)
	said = dialsWithoutMemory(t, "tcp", only.Addr().String(), "shm")
	assert.Equal(t, " over *net.TCPConn\n", said(), "it is connected, as with net.Dial, and nobody serves it")
	only.Close()
	assert.Nil(t, <-accepted)
}

// TestAnotherDevice: a client on network sdp that cannot take the channel dials again, and
// offers another device. The server's program hears nothing of the first connection.
func TestAnotherDevice(t *testing.T) {
	for _, network := range []string{"sdp", "tcp"} {
		lc := ListenConfig{Config: &Config{Devices: []string{"shm", "iwarp"}}}
		ln, err := lc.Listen(t.Context(), network, "127.0.0.1:0")
		require.NoError(t, err)
		defer ln.Close()
		accepted := accept1(ln)
		said := dialsWithoutMemory(t, "sdp", ln.Addr().String(), "shm,iwarp")
		s := <-accepted
		require.IsType(t, (*Conn)(nil), s)
		go func() {
			io.Copy(s, struct{ io.Reader }{s})
			s.Close()
		}()
		got := said()
		assert.Contains(t, got, "hello over iwarp")
		assert.Contains(t, got, "the limit on file sizes")
	}
}

// turnListener returns the connections that a test hands it.
type turnListener struct {
	addr  net.Addr
	conns chan net.Conn
	once  sync.Once
	over  chan struct{}
}

func (l *turnListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

func (l *turnListener) Close() error {
	l.once.Do(func() { close(l.over) })
	return nil
}

func (l *turnListener) Addr() net.Addr { return l.addr }

// turns returns a listener that accepts nothing but what a test hands it, and where its
// program's connections come.
func turns(t *testing.T, at net.Addr, config *Config, served chan<- net.Conn) *turnListener {
	t.Helper()
	turn := &turnListener{addr: at, conns: make(chan net.Conn), over: make(chan struct{})}
	ln, err := NewListener(turn, config)
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			served <- c
		}
	}()
	return turn
}

// oneConnection has a connection carry some bytes to the program that is served, and closes it
// in good order.
func oneConnection(t *testing.T, c net.Conn, served <-chan net.Conn) {
	t.Helper()
	var s net.Conn
	select {
	case s = <-served:
	case <-time.After(10 * time.Second):
		c.Close()
		require.FailNow(t, "the server's program hears nothing of the connection")
	}
	for _, end := range []net.Conn{c, s} {
		require.IsType(t, (*Conn)(nil), end)
		require.Equal(t, "shm", end.(*Conn).Device())
	}
	require.Equal(t, c.LocalAddr().String(), s.RemoteAddr().String(), "the program hears of this one alone")
	_, err := c.Write([]byte("hello"))
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(s, got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
	require.NoError(t, c.Close())
	_, err = s.Read(got)
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, s.Close())
}

// mostDials is how often a test dials for an idle channel: the first dial has none, nor has
// one that comes too late.
const mostDials = 100

// TestIdleChannelOfAnotherListener: of two listeners at one address, the one that a connection
// comes to may not be the one that has kept the channel. The client offers a new one on
// another connection, and the programs hear of that alone.
func TestIdleChannelOfAnotherListener(t *testing.T) {
	config := &Config{Devices: []string{"shm"}, StepUpTimeout: time.Minute, HandshakeTimeout: time.Minute, ReplyTimeout: time.Minute}
	announced := net.ListenConfig{Control: Announce}
	inner, err := announced.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan net.Conn, 10)
	lns := []*turnListener{turns(t, inner.Addr(), config, served), turns(t, inner.Addr(), config, served)}
	var came atomic.Int32
	done := make(chan struct{})
	defer func() { inner.Close(); <-done }()
	go func() {
		defer close(done)
		for {
			c, err := inner.Accept()
			if err != nil {
				return
			}
			lns[came.Add(1)%2].conns <- c
		}
	}()
	d := Dialer{Config: config}
	for _, network := range []string{"tcp", "sdp"} {
		twice := 0
		for i := 0; i < mostDials && twice < 5; i++ {
			before := came.Load()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			c, err := d.DialContext(ctx, network, inner.Addr().String())
			cancel()
			require.NoError(t, err)
			if came.Load() == before+2 {
				twice++
			}
			oneConnection(t, c, served)
		}
		assert.Equal(t, 5, twice, "dials whose idle channel was the other listener's")
	}
	assert.Empty(t, served)
}

// TestAnotherTakesAnIdleChannel: a server says that it has taken an idle channel which it does
// not have. The client sees that in the memory, and offers a new one on another connection.
func TestAnotherTakesAnIdleChannel(t *testing.T) {
	config := &Config{Devices: []string{"shm"}, StepUpTimeout: time.Minute, HandshakeTimeout: time.Minute, ReplyTimeout: time.Minute}
	announced := net.ListenConfig{Control: Announce}
	inner, err := announced.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan net.Conn, 10)
	own := turns(t, inner.Addr(), config, served)
	var lies atomic.Bool
	lied := make(chan wire.Channel, 1)
	done := make(chan struct{})
	defer func() { inner.Close(); <-done }()
	go func() {
		defer close(done)
		for {
			c, err := inner.Accept()
			if err != nil {
				return
			}
			if !lies.CompareAndSwap(true, false) {
				own.conns <- c
				continue
			}
			o, err := readOffers(c)
			assert.NoError(t, err)
			c.Write(hostileFrame(hostileReplyKey, 0x40, 1, hostileChoice(byte(wire.DeviceSHM), []byte{4, 0})...))
			lied <- o.Channel
			c.SetDeadline(time.Now().Add(20 * time.Second))
			rest, _ := io.ReadAll(c)
			assert.Empty(t, rest)
			c.Close()
		}
	}()
	d := Dialer{Config: config}
	for _, network := range []string{"tcp", "sdp"} {
		offered := wire.NoChannel
		for i := 0; i < mostDials && offered != wire.IdleChannel; i++ {
			c, err := d.Dial("sdp", inner.Addr().String())
			require.NoError(t, err)
			oneConnection(t, c, served)
			lies.Store(true)
			c, err = d.Dial(network, inner.Addr().String())
			offered = <-lied
			if offered == wire.IdleChannel {
				require.NoError(t, err)
				oneConnection(t, c, served)
			} else if err == nil { // it came too late, and this channel has nobody at its other end
				c.Close()
			}
		}
		assert.Equal(t, wire.IdleChannel, offered)
	}
}
