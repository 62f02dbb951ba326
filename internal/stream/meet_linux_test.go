package stream

import (
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/meeting"
	"github.com/gosdp/gosdp/internal/trigger"
)

// withSelf lets both ends be in this process.
func withSelf(t testing.TB) {
	meeting.TestSelf = true
	t.Cleanup(func() { meeting.TestSelf = false })
}

// movers returns a pair that moves by itself.
func movers(t testing.TB, at int) (a, b *Conn) {
	t.Helper()
	withSelf(t)
	a, b = tcpPair(t)
	a.Move(true, &Policy{At: at})
	b.Move(false, &Policy{At: at})
	return a, b
}

func (c *Conn) moved() bool { n, _ := c.Moves(); return n > 0 }

// TestMovesByItself: both directions of a connection that exchanges messages move, not before its score, and it comes home
// when the monitor finds it idle.
func TestMovesByItself(t *testing.T) {
	a, b := movers(t, trigger.Pays)
	n := 0
	for ; !a.moved() || !b.moved(); n++ {
		require.Less(t, n, 10_000)
		say(t, a, b, "ping")
		say(t, b, a, "pong")
	}
	assert.Greater(t, n, trigger.Pays)
	t.Logf("moved after %d exchanges", n)
	for a.linked.Load() != nil || b.linked.Load() != nil {
		unix.Poll(nil, 1) // the monitor's clock
	}
	say(t, a, b, "on TCP again")
	in, out := a.Counts()
	assert.Greater(t, out, in)
}

// TestStreamMoves: a connection on which one end only writes moves, too.
func TestStreamMoves(t *testing.T) {
	a, b := movers(t, trigger.Pays)
	go func() {
		buf := make([]byte, 128<<10)
		for !a.moved() && !a.is(closed) {
			a.Write(buf)
		}
		a.CloseWrite()
	}()
	n, err := io.Copy(io.Discard, b)
	require.NoError(t, err)
	assert.True(t, a.moved())
	t.Logf("moved after %d MB", n>>20)
}

// TestSharedSocket: a connection whose socket something else reads or writes stays on TCP.
func TestSharedSocket(t *testing.T) {
	for _, reads := range []bool{false, true} {
		a, b := movers(t, trigger.Pays)
		if reads {
			say(t, a, b, "12345678")
			n, err := a.Write([]byte("x"))
			require.Equal(t, 1, n)
			require.NoError(t, err)
			await(t, b)
			_, err = unix.Read(fdOf(t, b), make([]byte, 1))
			require.NoError(t, err)
		} else {
			_, err := unix.Write(fdOf(t, a), []byte("x"))
			require.NoError(t, err)
			_, err = io.ReadFull(b, make([]byte, 1))
			require.NoError(t, err)
		}
		for range 200 {
			say(t, a, b, "ping")
			say(t, b, a, "pong")
		}
		assert.False(t, a.moved(), "reads: %t", reads)
	}
}

// TestNobodyThere: a connection whose peer does not share memory stays on TCP, and has no descriptor more.
func TestNobodyThere(t *testing.T) {
	withSelf(t)
	for _, dialled := range []bool{false, true} {
		a, b := tcpPair(t)
		a.Move(dialled, &Policy{At: 2})
		before := openFiles(t)
		for range 1000 {
			say(t, a, b, "ping")
			say(t, b, a, "pong")
		}
		assert.False(t, a.moved())
		a.stopMoving()
		assert.LessOrEqual(t, openFiles(t), before+1) // the seeker's socket is kept
	}
}

func openFiles(t testing.TB) int {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

// TestLearns: the policy hears of a connection that lives long, once, and of one that ends early.
func TestLearns(t *testing.T) {
	withSelf(t)
	var heard []bool
	for _, n := range []int{100, 3} {
		a, b := tcpPair(t)
		a.Move(true, &Policy{At: trigger.Pays, Learn: func(long bool) { heard = append(heard, long) }})
		for range n {
			say(t, a, b, "ping")
			say(t, b, a, "pong")
		}
		a.Close()
	}
	assert.Equal(t, []bool{true, false}, heard)
}

// echo is the other process of BenchmarkRoundTrip.
func init() {
	addr, at := os.Getenv("STREAM_ECHO"), os.Getenv("STREAM_AT")
	if addr == "" {
		return
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		os.Exit(1)
	}
	s := New(c.(*net.TCPConn))
	if n, err := strconv.Atoi(at); err == nil {
		s.Move(true, &Policy{At: n})
	}
	buf := make([]byte, 64)
	for {
		if _, err := io.ReadFull(s, buf); err != nil {
			os.Exit(0)
		}
		if _, err := s.Write(buf); err != nil {
			os.Exit(0)
		}
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, at := range []string{"", "16"} {
		b.Run("at "+at, func(b *testing.B) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(b, err)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "STREAM_ECHO="+ln.Addr().String(), "STREAM_AT="+at)
			require.NoError(b, cmd.Start())
			c, err := ln.Accept()
			require.NoError(b, err)
			ln.Close()
			s := New(c.(*net.TCPConn))
			if n, err := strconv.Atoi(at); err == nil {
				s.Move(false, &Policy{At: n})
			}
			buf := make([]byte, 64)
			for b.Loop() {
				_, err := s.Write(buf)
				require.NoError(b, err)
				_, err = io.ReadFull(s, buf)
				require.NoError(b, err)
			}
			n, why := s.Moves()
			b.Logf("moves %d, %v", n, why)
			s.Close()
			cmd.Wait()
		})
	}
}
