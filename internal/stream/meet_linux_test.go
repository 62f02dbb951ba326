package stream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/meeting"
	"github.com/gosdp/gosdp/internal/shm"
	"github.com/gosdp/gosdp/internal/timing"
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

func openFiles(t testing.TB) int {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
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

// TestFile: a connection whose descriptor the program takes comes home, with what was unread, and moves again in the
// program that gets it.
func TestFile(t *testing.T) {
	a, b := linkedPair(t)
	move(t, a, b)
	_, err := a.Write([]byte("unread"))
	require.NoError(t, err)
	l := b.linked.Load()
	require.True(t, l.hold(), "so that Close still finds the link, as while a visit has it")
	f, err := b.File()
	require.NoError(t, err)
	defer f.Close()
	assert.True(t, l.home(incoming|outgoing))
	require.NoError(t, b.Close())
	l.drop()
	linger, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_LINGER)
	require.NoError(t, err)
	assert.Zero(t, linger, "it is the socket's, and would make the heir's Close a reset")
	conn, err := net.FileConn(f)
	require.NoError(t, err)
	heir := new(Conn)
	heir.Inherit(conn.(*net.TCPConn))
	t.Cleanup(func() { heir.Close() })
	got := make([]byte, 6)
	_, err = io.ReadFull(heir, got)
	require.NoError(t, err)
	assert.Equal(t, "unread", string(got))
	for a.linked.Load() != nil {
		a.Visit()
	}
	attach(t, a, heir)
	move(t, a, heir)
}

// TestRawConn: what programs do with a descriptor works wherever the connection is.
func TestRawConn(t *testing.T) {
	for _, moved := range []bool{false, true} {
		a, b := linkedPair(t)
		if moved {
			move(t, a, b)
		}
		raw, err := b.SyscallConn()
		require.NoError(t, err)
		look := func() (n int, err error) { // as connection pools do
			e := raw.Read(func(fd uintptr) bool {
				var one [1]byte
				n, err = unix.Read(int(fd), one[:])
				return true
			})
			require.NoError(t, e)
			return n, err
		}
		_, err = look()
		assert.ErrorIs(t, err, unix.EAGAIN)
		if moved {
			assert.Equal(t, inRing, b.linked.Load().reader.at(), "a look does not bring it home")
			say(t, a, b, "still in the ring")
		}
		_, err = a.Write([]byte("xyz"))
		require.NoError(t, err)
		await(t, b)
		var looked atomic.Bool
		visited := make(chan bool)
		go func() { // a's monitor
			for !looked.Load() {
				a.Visit()
			}
			close(visited)
		}()
		n, err := look()
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		assert.Equal(t, !moved, b.linked.Load() != nil && b.linked.Load().reader.at()&^lent == onTCP, "bytes on TCP need no way home")
		looked.Store(true)
		<-visited
		got := make([]byte, 2)
		_, err = io.ReadFull(b, got)
		require.NoError(t, err)
		assert.Equal(t, "yz", string(got))

		require.NoError(t, raw.Write(func(fd uintptr) bool {
			_, err := unix.Write(int(fd), []byte("raw"))
			return err == nil
		}))
		got = make([]byte, 3)
		_, err = io.ReadFull(a, got)
		require.NoError(t, err)
		assert.Equal(t, "raw", string(got))
		bringHome(t, a, b)
		say(t, a, b, "and on")
		say(t, b, a, "and on")
		attach(t, a, b)
		move(t, a, b)
		a.Close()
		for err = unix.EAGAIN; err == unix.EAGAIN; {
			n, err = look()
		}
		assert.NoError(t, err)
		assert.Zero(t, n, "the peer's end shows")
	}
}

// TestPolledDescriptor: a program that waits for the descriptor itself, and then reads with the Conn, gets everything.
func TestPolledDescriptor(t *testing.T) {
	for _, moved := range []bool{false, true} {
		a, b := movers(t, 4)
		if moved {
			for !a.moved() || !b.moved() {
				say(t, a, b, "ping")
				say(t, b, a, "pong")
			}
		}
		raw, err := b.SyscallConn()
		require.NoError(t, err)
		fd := int32(-1)
		require.NoError(t, raw.Control(func(f uintptr) { fd = int32(f) }))
		buf := make([]byte, 10)
		for i := range 200 {
			_, err := a.Write([]byte{byte(i)})
			require.NoError(t, err)
			p := []unix.PollFd{{Fd: fd, Events: unix.POLLIN}}
			for {
				if n, err := unix.Poll(p, 1); n > 0 {
					break
				} else if err != nil {
					require.ErrorIs(t, err, unix.EINTR)
				}
			}
			n, err := b.Read(buf)
			require.NoError(t, err)
			require.Equal(t, []byte{byte(i)}, buf[:n])
			_, err = b.Write([]byte("answer"))
			require.NoError(t, err)
			_, err = io.ReadFull(a, buf[:6])
			require.NoError(t, err)
		}
	}
}

// TestOptionsDoNotKeepAConnectionOnTCP: a program that sets an option with Control, and waits in Read, moves nevertheless.
// When it then leaves unread what has arrived, it may poll: the connection comes home and stays there.
func TestOptionsDoNotKeepAConnectionOnTCP(t *testing.T) {
	a, b := movers(t, 4)
	for _, c := range []*Conn{a, b} {
		raw, err := c.SyscallConn()
		require.NoError(t, err)
		require.NoError(t, raw.Control(func(uintptr) {}))
		assert.True(t, c.polled.yes())
	}
	echoed := make(chan error, 1)
	last := byte(1)
	go func() {
		buf := make([]byte, 1)
		for buf[0] != last {
			if _, err := io.ReadFull(b, buf); err != nil {
				echoed <- err
				return
			}
			b.Write(buf)
		}
		echoed <- nil
	}()
	buf := make([]byte, 1)
	exchange := func(with byte) {
		_, err := a.Write([]byte{with})
		require.NoError(t, err)
		_, err = io.ReadFull(a, buf)
		require.NoError(t, err)
	}
	for a.polled.yes() || b.polled.yes() || a.Device() != "shm" || b.Device() != "shm" {
		exchange(0)
	}
	exchange(0)
	exchange(last)
	require.NoError(t, <-echoed)

	for b.Unread() == 0 {
		_, err := a.Write([]byte("unread"))
		require.NoError(t, err)
	}
	k := &watched{since: 1}
	b.visited(k, 1)
	b.visited(k, 2)
	for !a.Visit() || !b.Visit() {
		runtime.Gosched()
	}
	assert.Equal(t, errPolled, b.Why(), "no Read takes what is in the ring")
}

// TestHookedSocket: a connection whose socket has a filter or the kernel's TLS stays on TCP, also if the program has set that
// after the ends have met.
func TestHookedSocket(t *testing.T) {
	accept := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 30}}
	for name, set := range map[string]func(fd int) error{
		"filter": func(fd int) error {
			return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &accept[0]})
		},
		"kernel TLS": func(fd int) error { return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_ULP, "tls") },
	} {
		for _, reads := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/reads=%t", name, reads), func(t *testing.T) {
				a, b := linkedPair(t)
				hooked := a
				if reads {
					hooked = b
				}
				if err := set(fdOf(t, hooked)); err != nil {
					t.Skipf("missing: a kernel that does this: %v", err)
				}
				say(t, a, b, "x") // a has joined, or b has not consented
				assert.Equal(t, errAltered, hooked.Why())
				for range 10 {
					say(t, b, a, "y")
					say(t, a, b, "x")
				}
				assert.Zero(t, a.Moves()+b.Moves())
			})
		}
	}
}

// TestDescriptorFromReflection: a program that polls a descriptor which it has not got from a method gets what arrives, too,
// although its Writes keep the connection busy. When it has shown that it does not wait in Read, it stays on TCP.
func TestDescriptorFromReflection(t *testing.T) {
	a, b := withPolicy(t, &Policy{At: scoreOf(1e6)}, &Policy{At: scoreOf(1e6)})
	attach(t, a, b)
	move(t, a, b)
	unwatch(a, b)
	fd := fdOf(t, b)
	_, err := a.Write([]byte("unread"))
	require.NoError(t, err)
	var k watched
	for now := int64(1); !b.polled.asked(); now += int64(timing.Visit) {
		require.Less(t, now, int64(2*timing.Idle), "nobody looks after the bytes")
		say(t, b, a, "busy")
		b.visited(&k, now)
	}
	for !a.Visit() || !b.Visit() {
		runtime.Gosched()
	}
	unread, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
	require.NoError(t, err)
	assert.Equal(t, 6, unread)
	assert.Equal(t, errPolled, b.Why())
}

// TestBudget: a connection moves and a ring grows only if the budget allows it, and gives back what it took. A connection
// whose ring should grow, and may not, comes home, where TCP has room.
func TestBudget(t *testing.T) {
	withSelf(t)
	for left, device := range map[int]string{
		shm.Cost - 1: "tcp", shm.Cost: "tcp", shm.Cost + shm.Medium: "tcp", shm.Cost + shm.Medium + shm.Largest: "shm",
	} {
		t.Run(strconv.Itoa(left), func(t *testing.T) {
			budget := make(chan int, 1)
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
				Give: func(n int) { budget <- <-budget + n },
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
			back := <-budget
			budget <- back
			assert.Equal(t, left, back)
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

// TestFileWaitsForAVisit: a visit that brings the last direction home lets the peer unmap its part before it has noted
// where the direction is.
func TestFileWaitsForAVisit(t *testing.T) {
	a, b := linkedPair(t)
	move(t, a, b)
	l := a.linked.Load()
	a.wmu.Lock()
	a.rmu.Lock()
	l.visiting.Add(1)
	b.linked.Load().bell.Close()
	filed := make(chan error, 1)
	go func() {
		f, err := a.File()
		if err == nil {
			err = f.Close()
		}
		filed <- err
	}()
	select {
	case err := <-filed:
		assert.Fail(t, "File has not waited", err)
	case <-time.After(20 * time.Millisecond):
	}
	l.bring(&l.reader.half)
	l.bring(&l.writer.half)
	a.rmu.Unlock()
	a.wmu.Unlock()
	l.visiting.Add(-1)
	require.NoError(t, <-filed)
	assert.Equal(t, "tcp", a.Device())
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
