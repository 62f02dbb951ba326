package stream

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/meeting"
	"github.com/gosdp/gosdp/internal/shm"
	"github.com/gosdp/gosdp/internal/trigger"
)

// withSelf lets both ends be in this process.
func withSelf(t testing.TB) {
	meeting.TestSelf = true
	t.Cleanup(func() { meeting.TestSelf = false })
}

// movers returns a pair that moves by itself.
func movers(t testing.TB, score int) (a, b *Conn) {
	t.Helper()
	withSelf(t)
	a, b = tcpPair(t)
	a.Move(true, &Policy{At: scoreOf(score)})
	b.Move(false, &Policy{At: scoreOf(score)})
	return a, b
}

// scoreOf is the At of a Policy under which all connections move at one score.
func scoreOf(score int) func(bool, netip.AddrPort) int {
	return func(bool, netip.AddrPort) int { return score }
}

func (c *Conn) moved() bool { return c.Moves() > 0 }

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
	assert.Greater(t, a.out.Load(), a.in.Load())
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
		a.Move(dialled, &Policy{At: scoreOf(2)})
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

// TestLearns: the policy hears of a connection that lives long, once, of one that ends early, and of meetings in vain.
func TestLearns(t *testing.T) {
	withSelf(t)
	var heard []trigger.Lesson
	for _, n := range []int{100, 3} {
		a, b := tcpPair(t)
		a.Move(true, &Policy{Learn: func(_ bool, _ netip.AddrPort, l trigger.Lesson) { heard = append(heard, l) }})
		for range n {
			say(t, a, b, "ping")
			say(t, b, a, "pong")
		}
		a.Close()
	}
	assert.Contains(t, heard, trigger.Vain, "nobody has come")
	heard = slices.DeleteFunc(heard, func(l trigger.Lesson) bool { return l == trigger.Vain })
	assert.Equal(t, []trigger.Lesson{trigger.Long, trigger.Short}, heard)
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
		s.Move(true, &Policy{At: scoreOf(n)})
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
				s.Move(false, &Policy{At: scoreOf(n)})
			}
			buf := make([]byte, 64)
			for b.Loop() {
				_, err := s.Write(buf)
				require.NoError(b, err)
				_, err = io.ReadFull(s, buf)
				require.NoError(b, err)
			}
			b.Logf("moves %d, %v", s.Moves(), s.Why())
			s.Close()
			cmd.Wait()
		})
	}
}

// TestBudget: a connection moves and a ring grows only if the budget allows it, and gives back what it took. A connection
// whose ring should grow, and may not, comes home, where TCP has room.
func TestBudget(t *testing.T) {
	withSelf(t)
	for left, device := range map[int]string{
		shm.Cost - 1: "tcp", shm.Cost: "tcp", shm.Cost + shm.Medium: "tcp", shm.Cost + shm.Medium + shm.Largest: "shm",
	} {
		t.Run(strconv.Itoa(left), func(t *testing.T) {
			budget, given := make(chan int, 1), make(chan struct{}, 100)
			budget <- left
			p := &Policy{
				At: scoreOf(2),
				Take: func(n int) bool {
					has := <-budget
					defer func() { budget <- has }()
					if n > has {
						return false
					}
					has -= n
					return true
				},
				Give: func(n int) {
					budget <- <-budget + n
					given <- struct{}{}
				},
			}
			a, b := tcpPair(t)
			a.Move(true, p)
			b.Move(false, &Policy{At: scoreOf(2)})
			talk := func() {
				say(t, a, b, "ping")
				say(t, b, a, "pong")
			}
			if left < shm.Cost {
				for a.Why() != errMemory {
					talk()
				}
				return
			}
			for a.Device() != "shm" || b.Device() != "shm" {
				talk()
			}
			const size = 1 << 20
			written := make(chan error, 1)
			go func() {
				_, err := a.Write(make([]byte, size))
				written <- err
			}()
			require.NoError(t, <-written, "nobody reads")
			assert.Equal(t, device, a.Device())
			if device == "tcp" {
				assert.Equal(t, errMemory, a.Why())
			}
			_, err := io.ReadFull(b, make([]byte, size))
			require.NoError(t, err)
			talk()
			a.Close()
			for back := 0; back != left; { // a visit in progress may be the last to give back
				<-given
				back = <-budget
				budget <- back
			}
		})
	}

	a, b := tcpPair(t)
	a.Move(true, &Policy{At: scoreOf(2), Admit: func() error { return errors.New("near a limit") }})
	b.Move(false, &Policy{At: scoreOf(2)})
	for range 200 {
		say(t, a, b, "ping")
		say(t, b, a, "pong")
	}
	assert.EqualError(t, a.Why(), "near a limit")
}

// TestUserTimeout: TCP_USER_TIMEOUT ends a Write for which the peer makes no room, and the connection, in the ring as on
// TCP. The peer gets a reset, and no end of the stream.
func TestUserTimeout(t *testing.T) {
	for _, device := range []string{"tcp", "shm"} {
		t.Run(device, func(t *testing.T) {
			a, b := tcpPair(t)
			if device == "shm" {
				a, b = withPolicy(t, &Policy{}, &Policy{})
				attach(t, a, b)
				move(t, a, b)
				unwatch(a, b) // as if the peer's process were stopped
			}
			raw, err := a.tcp.SyscallConn()
			require.NoError(t, err)
			require.NoError(t, raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 100)
			}))
			require.NoError(t, err)
			n, err := a.Write(make([]byte, 32<<20))
			assert.ErrorIs(t, err, unix.ETIMEDOUT)
			assert.Less(t, n, 32<<20)
			_, err = a.Write([]byte("x"))
			assert.ErrorIs(t, err, unix.EPIPE)
			_, err = a.Read(make([]byte, 1))
			assert.Error(t, err)
			if device == "shm" {
				_, err = io.Copy(io.Discard, b)
				assert.ErrorIs(t, err, unix.ECONNRESET)
			}
		})
	}
}

// TestVisitFindsTheReset when it sends what the peer has left in the ring: the kernel tells it once, and the program's next
// call must see it.
func TestVisitFindsTheReset(t *testing.T) {
	for name, next := range map[string]func(c *Conn) error{
		"Read":  func(c *Conn) error { _, err := c.Read(make([]byte, 1)); return err },
		"Write": func(c *Conn) error { _, err := c.Write([]byte("y")); return err },
	} {
		a, b := linkedPair(t)
		move(t, a, b)
		_, err := a.Write([]byte("x"))
		require.NoError(t, err)
		b.Leave()
		require.Equal(t, inRing, a.linked.Load().writer.at())
		require.NoError(t, b.Close()) // with an unread byte
		a.Visit()
		require.Equal(t, home, a.linked.Load().writer.at())
		require.ErrorIs(t, next(a), unix.ECONNRESET, name)
		_, err = a.Read(make([]byte, 1))
		assert.Equal(t, io.EOF, err, name)
		_, err = a.Write([]byte("z"))
		assert.ErrorIs(t, err, unix.EPIPE, name)
	}
}
