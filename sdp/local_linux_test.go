package sdp

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
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
