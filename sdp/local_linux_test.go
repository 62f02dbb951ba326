package sdp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/local"
	"github.com/gosdp/gosdp/internal/meeting"
	"github.com/gosdp/gosdp/internal/policy"
	"github.com/gosdp/gosdp/internal/status"
	"github.com/gosdp/gosdp/test/conntest"
)

func init() { meeting.TestSelf = true } // both ends of most connections are in the process of the test

// restless says that connections come home at random.
var restless = os.Getenv(policy.MoveVariable) == "at-random"

// met reports whether the ends of a connection share memory.
func met(c *Conn) bool {
	l, ok := c.carrier.(*local.Conn)
	return ok && l.Met()
}

// localEnds returns both ends of a connection between two programs of this host.
func localEnds(network string, config *Config) (client, server *Conn, err error) {
	config = overSHM(config)
	ln, err := (&ListenConfig{Config: config}).Listen(context.Background(), network, "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	c, s, err := bothEnds(ln, func(address string) (net.Conn, error) {
		return (&Dialer{Config: config}).Dial(network, address)
	})
	if err != nil {
		return nil, nil, err
	}
	return c.(*Conn), s.(*Conn), nil
}

// localPair is localEnds for a test that does not survive a hanging connection.
func localPair(t testing.TB, network string, config *Config) (client, server *Conn) {
	t.Helper()
	c, s, err := localEnds(network, config)
	require.NoError(t, err)
	end := time.Now().Add(soon)
	for _, c := range []*Conn{c, s} {
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.SetDeadline(end))
		require.IsType(t, (*local.Conn)(nil), c.carrier)
	}
	return c, s
}

// exchange sends a line there and back.
func exchange(t testing.TB, c, s net.Conn) {
	t.Helper()
	b := make([]byte, 5)
	for _, ends := range [2][2]net.Conn{{c, s}, {s, c}} {
		_, err := ends[0].Write([]byte("line\n"))
		require.NoError(t, err)
		_, err = io.ReadFull(ends[1], b)
		require.NoError(t, err)
		require.Equal(t, "line\n", string(b))
	}
}

// intoRing exchanges lines until both ends are in shared memory, or were there if connections come home at
// random. It returns how many lines each end has sent.
func intoRing(t testing.TB, c, s *Conn) (lines int) {
	t.Helper()
	for ; ; lines++ {
		if c.Device() == deviceSHM && s.Device() == deviceSHM {
			return lines
		}
		if restless && c.Stats().Moves > 0 && s.Stats().Moves > 0 {
			return lines
		}
		require.Less(t, lines, 100_000)
		exchange(t, c, s)
	}
}

// home brings a connection home for good.
func home(t testing.TB, c *Conn) {
	t.Helper()
	f, err := c.File()
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Equal(t, devicePlain, c.Device())
}

// moments are when calls are made on a connection.
var moments = map[string]func(t testing.TB, c, s *Conn){
	"on TCP":       func(testing.TB, *Conn, *Conn) {},
	"in the ring":  func(t testing.TB, c, s *Conn) { intoRing(t, c, s) },
	"home again":   func(t testing.TB, c, s *Conn) { intoRing(t, c, s); home(t, c) },
	"peer is home": func(t testing.TB, c, s *Conn) { intoRing(t, c, s); home(t, s) },
}

// TestLocalConnectionMoves: it begins on TCP, moves when that pays, and counts what it carries.
func TestLocalConnectionMoves(t *testing.T) {
	before := Stats()
	c, s := localPair(t, "tcp", nil)
	for _, end := range []*Conn{c, s} {
		assert.Equal(t, devicePlain, end.Device())
		assert.Equal(t, "too little traffic", end.Stats().OnTCP)
		assert.Zero(t, end.Stats().Moves)
	}
	lines := intoRing(t, c, s)
	assert.Positive(t, lines)
	for range 10 {
		exchange(t, c, s)
		lines++
	}
	sameBytes(t, c, s, random(300_000))
	sent, received := uint64(5*lines+300_000), uint64(5*lines)
	for _, end := range []*Conn{c, s} {
		stats := end.Stats()
		if !restless {
			assert.Equal(t, deviceSHM, stats.Device)
			assert.Empty(t, stats.OnTCP)
			assert.EqualValues(t, 1, stats.Moves)
			assert.Positive(t, stats.ShmSent)
		}
		assert.Positive(t, stats.Moves)
		assert.Positive(t, stats.TCPSent)
		assert.Equal(t, sent, stats.Sent())
		assert.Equal(t, received, stats.Received())
		sent, received = received, sent
	}
	open := Stats()
	assert.Equal(t, before.Open+2, open.Open)
	assert.Equal(t, before.Opened+2, open.Opened)
	assert.Equal(t, sent+received, open.Sent()-before.Sent())
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
	after := Stats()
	assert.Equal(t, before.Open, after.Open)
	assert.Equal(t, sent+received, after.Sent()-before.Sent(), "what it has carried is still in the totals")
	assert.Equal(t, sent+received, after.Received()-before.Received())
	closed := c.Stats()
	assert.Equal(t, sent, closed.Sent(), "after Close")
}

// TestStreamOfOneDirectionMoves, though the other end only reads.
func TestStreamOfOneDirectionMoves(t *testing.T) {
	c, s := localPair(t, "tcp", nil)
	var reading sync.WaitGroup
	reading.Go(func() {
		_, err := readStream(s, 0, forever, 100_000)
		assert.Equal(t, io.EOF, err)
	})
	at := 0
	for c.Stats().Moves == 0 && at < 1<<34 {
		n, err := writeStream(c, at, at+streamMax, streamMax)
		require.NoError(t, err)
		at = n
	}
	assert.Positive(t, c.Stats().Moves)
	require.NoError(t, c.CloseWrite())
	reading.Wait()
	stats := s.Stats()
	assert.EqualValues(t, at, stats.Received())
}

// TestNettestLocal: what package net promises holds on every network.
func TestNettestLocal(t *testing.T) {
	for _, network := range []string{"tcp", "sdp"} {
		t.Run(network, func(t *testing.T) {
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				c, s, err := localEnds(network, nil)
				if err != nil {
					return nil, nil, nil, err
				}
				return c, s, func() {
					c.Close()
					s.Close()
				}, nil
			})
		})
	}
}

// TestRandomTrafficLocal is TestRandomTraffic on connections that move.
func TestRandomTrafficLocal(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c, s := localPair(t, "tcp", nil)
			intoRing(t, c, s)
			bothWays(t, c, s, seed, 3<<20)
		})
	}
}

// script are calls in which a connection and its peer end in some way. Each returns the errors of the calls.
var script = map[string]func(c, peer promised) []error{
	"closed": func(c, _ promised) []error {
		return []error{c.Close(), readOne(c), writeOne(c), c.CloseRead(), c.CloseWrite(), c.Close(), c.SetDeadline(time.Time{}), c.SetLinger(1)}
	},
	"deadline": func(c, _ promised) []error {
		return []error{c.SetDeadline(time.Unix(1, 0)), readOne(c), writeOne(c), c.SetDeadline(time.Time{}), writeOne(c)}
	},
	"deadline of a Read that waits": func(c, _ promised) []error {
		return []error{c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)), readOne(c)}
	},
	"the peer closes": func(c, peer promised) []error {
		return []error{peer.Close(), readOne(c), readOne(c), c.Close()}
	},
	"the peer closes, Writes": func(c, peer promised) []error {
		errs := []error{peer.Close(), readOne(c), writeOne(c)}
		for range 1000 { // until the reset has arrived
			if err := writeOne(c); err != nil {
				return append(errs, err, writeOne(c), readOne(c))
			}
			runtime.Gosched()
		}
		return append(errs, nil)
	},
	"reset": func(c, peer promised) []error {
		return []error{peer.SetLinger(0), peer.Close(), readOne(c), readOne(c), writeOne(c), writeOne(c)}
	},
	"reset, then CloseRead and CloseWrite": func(c, peer promised) []error {
		return []error{peer.SetLinger(0), peer.Close(), readOne(c), c.CloseRead(), c.CloseWrite()}
	},
	"CloseWrite": func(c, peer promised) []error {
		return []error{c.CloseWrite(), writeOne(c), readOne(peer), writeOne(peer), readOne(c), c.CloseWrite()}
	},
	"CloseRead": func(c, peer promised) []error {
		return []error{c.CloseRead(), readOne(c), readOne(c), writeOne(c), readOne(peer)}
	},
	"CloseWrite of both": func(c, peer promised) []error {
		return []error{c.CloseWrite(), peer.CloseWrite(), readOne(c), readOne(peer), c.CloseRead(), c.CloseWrite(), writeOne(c)}
	},
	"the peer closes with unread bytes": func(c, peer promised) []error {
		return []error{writeOne(c), peer.Close(), readOne(c)}
	},
	"the peer closes after bytes": func(c, peer promised) []error {
		return []error{writeOne(peer), peer.Close(), readOne(c), readOne(c)}
	},
	"the peer resets after bytes": func(c, peer promised) []error {
		return []error{writeOne(peer), peer.SetLinger(0), peer.Close(), readOne(c)}
	},
	"ReadFrom after CloseWrite": func(c, _ promised) []error {
		ended := c.CloseWrite()
		_, err := c.ReadFrom(endless{})
		return []error{ended, err}
	},
}

func readOne(c net.Conn) error {
	_, err := c.Read(make([]byte, 1))
	return err
}

func writeOne(c net.Conn) error {
	_, err := c.Write([]byte("x"))
	return err
}

// TestErrorsAsTCPsWhereverItIs compares the errors of calls on a connection with those of package net, before the
// connection moves, in shared memory, and after it came home.
func TestErrorsAsTCPsWhereverItIs(t *testing.T) {
	texts := func(c net.Conn, errs []error) (all []string) {
		for _, err := range errs {
			all = append(all, describe(err, c.LocalAddr(), c.RemoteAddr()))
		}
		return all
	}
	for name, calls := range script {
		_, s, c := stacks[0].connect(t, "tcp4", "127.0.0.1:0")
		want := texts(c, calls(c.(promised), s.(promised)))
		for moment, bring := range moments {
			t.Run(name+", "+moment, func(t *testing.T) {
				c, s := localPair(t, "tcp4", nil)
				bring(t, c, s)
				assert.Equal(t, want, texts(c, calls(c, s)))
			})
		}
	}
}

// TestErrorsNameTheNetworkInTheRing as Dial and Listen do.
func TestErrorsNameTheNetworkInTheRing(t *testing.T) {
	for _, network := range []string{"tcp", "tcp4", "sdp", "sdp4"} {
		c, s := localPair(t, network, nil)
		intoRing(t, c, s)
		for _, c := range []*Conn{c, s} {
			require.NoError(t, c.SetReadDeadline(time.Unix(1, 0)))
			var op *net.OpError
			require.ErrorAs(t, readOne(c), &op)
			assert.Equal(t, network, op.Net)
			assert.Equal(t, c.LocalAddr(), op.Source)
			assert.Equal(t, c.RemoteAddr(), op.Addr)
		}
	}
}

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

// TestDevicesTCP: where SDP is off, connections are package net's.
func TestDevicesTCP(t *testing.T) {
	config := &Config{Devices: []string{"tcp"}}
	ln, err := (&ListenConfig{Config: config}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c, s, err := bothEnds(ln, func(address string) (net.Conn, error) { return (&Dialer{Config: config}).Dial("tcp", address) })
	require.NoError(t, err)
	defer c.Close()
	defer s.Close()
	assert.IsType(t, (*net.TCPConn)(nil), c)
	assert.IsType(t, (*net.TCPConn)(nil), s)

	// At one end: the other stays on TCP.
	c, s, err = bothEnds(ln, func(address string) (net.Conn, error) { return (&Dialer{Config: overSHM(nil)}).Dial("tcp", address) })
	require.NoError(t, err)
	defer c.Close()
	defer s.Close()
	for range 100 {
		exchange(t, c, s)
	}
	up := c.(*Conn)
	assert.Equal(t, devicePlain, up.Device())
	assert.Zero(t, up.Stats().Moves)
	assert.NotEmpty(t, up.Stats().OnTCP)
	assert.EqualValues(t, 500, up.Stats().TCPSent)
}

// TestFileOfALiveConnection: everything is on the copy of its socket, where another Conn goes on, and moves again.
func TestFileOfALiveConnection(t *testing.T) {
	c, s := localPair(t, "tcp", nil)
	intoRing(t, c, s)
	_, err := c.Write([]byte("unread"))
	require.NoError(t, err)
	f, err := s.File()
	require.NoError(t, err)
	defer f.Close()
	assert.Equal(t, devicePlain, s.Device())
	if !restless {
		assert.NotEmpty(t, s.Stats().OnTCP)
	}
	for range 100 {
		exchangeAfter(t, c, s, "unread")
	}
	assert.Equal(t, devicePlain, s.Device(), "it stays there in this process")

	_, err = c.Write([]byte("for the heir"))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	t.Setenv(devicesVariable, "")
	heir, err := FileConn(f)
	require.NoError(t, err)
	defer heir.Close()
	require.NoError(t, f.Close())
	require.IsType(t, (*Conn)(nil), heir)
	require.NoError(t, heir.SetDeadline(time.Now().Add(soon)))
	b := make([]byte, 12)
	_, err = io.ReadFull(heir, b)
	require.NoError(t, err)
	assert.Equal(t, "for the heir", string(b))
	before := heir.(*Conn).Stats().Moves
	for i := 0; heir.(*Conn).Stats().Moves == before; i++ {
		require.Less(t, i, 100_000, "it does not move again: %+v", heir.(*Conn).Stats())
		exchange(t, c, heir)
	}
	require.NoError(t, c.CloseWrite())
	rest, err := io.ReadAll(heir)
	assert.NoError(t, err)
	assert.Empty(t, rest)
}

// exchangeAfter is exchange; the first time, s reads what was written before.
func exchangeAfter(t *testing.T, c, s *Conn, before string) {
	t.Helper()
	if stats := s.Stats(); stats.Received()%5 == 0 { // lines alone
		b := make([]byte, len(before))
		_, err := io.ReadFull(s, b)
		require.NoError(t, err)
		require.Equal(t, before, string(b))
	}
	exchange(t, c, s)
}

// TestFileConnOfAnother: what is no connection between two programs of this host is package net's.
func TestFileConnOfAnother(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fds[1])
	f := os.NewFile(uintptr(fds[0]), "socket")
	defer f.Close()
	c, err := FileConn(f)
	require.NoError(t, err)
	defer c.Close()
	assert.IsType(t, (*net.UnixConn)(nil), c)
	none, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer none.Close()
	_, err = FileConn(none)
	_, want := net.FileConn(none)
	assert.Equal(t, want.Error(), err.Error())
}

// TestNewListenerReturnsWhatWentIn: connections of a listener that wraps them come out as they are, those of TCP as
// Conns.
func TestNewListenerReturnsWhatWentIn(t *testing.T) {
	for name, v := range map[string]struct {
		wrap func(net.Listener) net.Listener
		is   net.Conn
	}{
		"wrapped": {func(ln net.Listener) net.Listener { return bareListener{ln} }, bare{}},
		"TCP":     {func(ln net.Listener) net.Listener { return ln }, (*Conn)(nil)},
		"wrapped listener of TCP": {func(ln net.Listener) net.Listener {
			return struct{ net.Listener }{ln}
		}, (*Conn)(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			below, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			ln, err := NewListener(v.wrap(below), overSHM(nil))
			require.NoError(t, err)
			defer ln.Close()
			c, s, err := bothEnds(ln, func(address string) (net.Conn, error) { return (&Dialer{Config: overSHM(nil)}).Dial("tcp", address) })
			require.NoError(t, err)
			defer c.Close()
			defer s.Close()
			require.IsType(t, v.is, s)
			for range 50 {
				exchange(t, c, s)
			}
			if _, ok := s.(bare); ok {
				assert.Zero(t, c.(*Conn).Stats().Moves, "its peer cannot")
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

// TestDroppedLocalConnectionsAreClosed by the garbage collector, wherever they are.
func TestDroppedLocalConnectionsAreClosed(t *testing.T) {
	for _, moment := range []string{"on TCP", "in the ring"} {
		t.Run(moment, func(t *testing.T) {
			before := Stats().Open
			peers := make([]*Conn, 20)
			for i := range peers {
				c, s, err := localEnds("tcp", nil)
				require.NoError(t, err)
				moments[moment](t, c, s)
				_, err = c.Write([]byte("last words"))
				require.NoError(t, err)
				peers[i] = s
			}
			require.Eventually(t, func() bool {
				runtime.GC()
				return Stats().Open <= before+len(peers)
			}, soon, 10*time.Millisecond)
			for _, s := range peers {
				require.NoError(t, s.SetDeadline(time.Now().Add(soon)))
				got, err := io.ReadAll(s)
				assert.NoError(t, err)
				assert.Equal(t, "last words", string(got))
				require.NoError(t, s.Close())
			}
			assert.Equal(t, before, Stats().Open)
		})
	}
}

// TestReadKeepsTheLocalConnection although nobody else has it.
func TestReadKeepsTheLocalConnection(t *testing.T) {
	read := make(chan string, 1)
	s := readLocalAlone(t, read)
	defer s.Close()
	for range 3 {
		collectGarbage()
	}
	_, err := s.Write([]byte("still there"))
	require.NoError(t, err)
	assert.Equal(t, "still there", <-read)
}

//go:noinline
func readLocalAlone(t *testing.T, read chan<- string) net.Conn {
	t.Helper()
	c, s, err := localEnds("tcp", nil)
	require.NoError(t, err)
	intoRing(t, c, s)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(soon)))
	go func() {
		b := make([]byte, 100)
		n, err := c.Read(b)
		if err != nil {
			read <- err.Error()
			return
		}
		read <- string(b[:n])
	}()
	return s
}

// TestDumpOfALocalConnection has what it carries on TCP and in shared memory, by every method.
func TestDumpOfALocalConnection(t *testing.T) {
	c, s := localPair(t, "tcp", nil)
	var f dumpFile
	d := startDump(t, &f, fromEnd(c))
	require.NotNil(t, c.carrier.Dumped().Load())
	require.Nil(t, s.carrier.Dumped().Load())
	var there, back bytes.Buffer
	for range 60 {
		exchange(t, c, s)
		there.WriteString("line\n")
		back.WriteString("line\n")
	}
	big := random(300_000)
	sameBytes(t, c, s, big)
	there.Write(big)
	sameBytes(t, s, c, big)
	back.Write(big)

	var reading sync.WaitGroup
	reading.Go(func() {
		_, err := io.Copy(&there, struct{ io.Reader }{s})
		assert.NoError(t, err)
	})
	_, err := c.WriteBuffers(&net.Buffers{[]byte("one"), nil, []byte("two")})
	require.NoError(t, err)
	_, err = c.ReadFrom(strings.NewReader(strings.Repeat("from", 1000)))
	require.NoError(t, err)
	require.NoError(t, c.CloseWrite())
	reading.Wait()
	_, err = s.Write([]byte("the end"))
	require.NoError(t, err)
	require.NoError(t, s.CloseWrite())
	_, err = c.WriteTo(&back)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, d.Stop())
	sent, received, flags := streams(t, f.bytes())
	require.True(t, bytes.Equal(there.Bytes(), sent), "%d bytes sent, %d in the file", there.Len(), len(sent))
	require.True(t, bytes.Equal(back.Bytes(), received), "%d bytes received, %d in the file", back.Len(), len(received))
	assert.EqualValues(t, 1, flags[0]&1, "no FIN of this end")
	assert.EqualValues(t, 1, flags[1]&1, "no FIN of the peer")
	assert.Nil(t, c.carrier.Dumped().Load(), "a closed connection keeps its stream")
}

// TestDumpOfALocalReset: a Write that fails is not in the dump.
func TestDumpOfALocalReset(t *testing.T) {
	for moment, bring := range moments {
		t.Run(moment, func(t *testing.T) {
			c, s := localPair(t, "tcp", nil)
			bring(t, c, s)
			var f dumpFile
			d := startDump(t, &f, fromEnd(c))
			require.NoError(t, s.SetLinger(0))
			require.NoError(t, s.Close())
			require.ErrorIs(t, readOne(c), syscall.ECONNRESET)
			require.ErrorIs(t, writeOne(c), syscall.EPIPE)
			require.NoError(t, d.Stop())
			sent, received, flags := streams(t, f.bytes())
			assert.Empty(t, sent)
			assert.Empty(t, received)
			assert.NotZero(t, flags[1]&4, "RST of the peer")
		})
	}
}

// TestStatusOfALocalConnection is what operators see of it.
func TestStatusOfALocalConnection(t *testing.T) {
	var text conntest.Log
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c, s := localPair(t, "tcp", &Config{Logger: log})
	listed := func() (dialled, accepted *status.Conn) {
		var b bytes.Buffer
		require.NoError(t, WriteStatus(&b))
		var p status.Program
		require.NoError(t, json.Unmarshal(b.Bytes(), &p))
		for i := range p.Conns {
			switch k := &p.Conns[i]; k.Local {
			case c.LocalAddr().String():
				dialled = k
			case s.LocalAddr().String():
				if k.Remote == c.LocalAddr().String() {
					accepted = k
				}
			}
		}
		require.NotNil(t, dialled)
		require.NotNil(t, accepted)
		return dialled, accepted
	}
	dialled, accepted := listed()
	assert.True(t, dialled.Dialled)
	assert.False(t, accepted.Dialled)
	for _, k := range []*status.Conn{dialled, accepted} {
		assert.Equal(t, "tcp", k.Device)
		assert.Equal(t, "socket", k.Mode)
		assert.Equal(t, "too little traffic", k.OnTCP)
		assert.Zero(t, k.Sent+k.Received+k.Moves)
	}
	lines := intoRing(t, c, s)
	if !restless {
		_, err := c.Write([]byte("unread"))
		require.NoError(t, err)
		dialled, accepted = listed()
		for _, k := range []*status.Conn{dialled, accepted} {
			assert.Equal(t, "shm", k.Device)
			assert.Equal(t, "ring", k.Mode)
			assert.Empty(t, k.OnTCP)
			assert.EqualValues(t, 1, k.Moves)
		}
		assert.EqualValues(t, 5*lines+6, dialled.Sent)
		assert.EqualValues(t, 5*lines, accepted.Received)
		assert.Equal(t, 6, accepted.Unread)
		_, err = io.ReadFull(s, make([]byte, 6))
		require.NoError(t, err)
	}
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
	for _, k := range Connections() {
		assert.NotEqual(t, c.LocalAddr().String(), k.Local.String())
	}
	events := strings.Join(text.Lines(), "\n")
	assert.Equal(t, 2, strings.Count(events, `msg="sdp: connection established"`), "%s", events)
	assert.Equal(t, 2, strings.Count(events, `msg="sdp: connection closed"`), "%s", events)
	assert.Contains(t, events, "device=tcp")
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

// TestLocalConnectionOfABubble stays on TCP, and leaves nothing to run outside.
func TestLocalConnectionOfABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, err := localEnds("tcp", nil)
		require.NoError(t, err)
		for range 100 {
			exchange(t, c, s)
		}
		assert.Equal(t, devicePlain, c.Device())
		assert.Zero(t, c.Stats().Moves)
		assert.NotEmpty(t, c.Stats().OnTCP)
		require.NoError(t, c.Close())
		require.NoError(t, s.Close())
	})
}

// TestMemoryIsGivenBack that large rings take.
func TestMemoryIsGivenBack(t *testing.T) {
	before := Stats().Memory
	c, s := localPair(t, "tcp", nil)
	intoRing(t, c, s)
	const size = 3 << 20 // more than a small ring has, and less than TCP takes
	written := make(chan error, 1)
	go func() {
		_, err := c.Write(random(size))
		written <- err
	}()
	_, err := io.CopyN(io.Discard, s, size)
	require.NoError(t, err)
	require.NoError(t, <-written)
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
	require.Eventually(t, func() bool { return Stats().Memory <= before }, soon, time.Millisecond)
}
