package stream

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/shm"
)

// withPolicy returns a pair that may move, by policies of both ends.
func withPolicy(t testing.TB, p, q *Policy) (a, b *Conn) {
	t.Helper()
	withSelf(t)
	a, b = tcpPair(t)
	a.Move(true, p)
	b.Move(false, q)
	b.Expect()
	return a, b
}

// TestNettestMovers: what package net promises holds on connections that move by themselves.
func TestNettestMovers(t *testing.T) {
	for name, p := range map[string]*Policy{
		"at 1":     {At: scoreOf(1)},
		"restless": {Restless: true},
	} {
		t.Run(name, func(t *testing.T) {
			withSelf(t)
			var moves uint64
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				a, b := tcpPair(t)
				a.Move(true, p)
				b.Move(false, p)
				b.Expect()
				return a, b, func() {
					a.Close()
					b.Close()
					moves += a.Moves() + b.Moves()
				}, nil
			})
			assert.Positive(t, moves)
		})
	}
}

// TestMeet: ends that both call Meet have a segment when it returns, and move at once.
func TestMeet(t *testing.T) {
	a, b := withPolicy(t, &Policy{}, &Policy{})
	assert.Equal(t, "tcp", a.Device())
	assert.Equal(t, errQuiet, a.Why())
	done := make(chan error)
	go func() { done <- b.Meet(t.Context(), time.Minute) }()
	require.NoError(t, a.Meet(t.Context(), time.Minute))
	require.NoError(t, <-done)
	move(t, a, b)
	for _, c := range []*Conn{a, b} {
		assert.Equal(t, "shm", c.Device())
		assert.NoError(t, c.Why())
		assert.EqualValues(t, 1, c.Moves())
	}
	met, err := a.TryMeet()
	assert.True(t, met)
	assert.NoError(t, err)
}

// TestMeetsChild: the peer of a Meet that sends nothing is found although its program has called nothing but Move.
func TestMeetsChild(t *testing.T) {
	a, b := withPolicy(t, &Policy{}, &Policy{})
	require.NoError(t, a.Meet(t.Context(), time.Minute))
	for b.linked.Load() == nil {
		unix.Poll(nil, 1)
	}
	move(t, a, b)
	a.Close()
	b.Close()
	for {
		children.mu.Lock()
		none := len(children.conns) == 0 && children.ticker == nil
		children.mu.Unlock()
		if none {
			return
		}
		unix.Poll(nil, 1)
	}
}

// TestMeetFails: Meet says why there is no shared memory, and the connection goes on, and may move later.
func TestMeetFails(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, v := range map[string]struct {
		ctx  context.Context
		p    Policy
		do   func(a, b *Conn)
		want string
	}{
		"nobody":    {do: func(a, b *Conn) { b.policy = nil }, want: "peer does not share memory"},
		"cancelled": {ctx: cancelled, do: func(a, b *Conn) { b.policy = nil }, want: "context canceled"},
		"sandbox":   {p: Policy{Sandboxed: func() error { return os.ErrPermission }}, want: "permission denied"},
		"limit":     {p: Policy{Admit: func() error { return os.ErrPermission }}, want: "permission denied"},
		"given away": {do: func(a, b *Conn) {
			f, err := a.File()
			require.NoError(t, err)
			f.Close()
		}, want: errGiven.Error()},
		"closed": {do: func(a, b *Conn) { a.Close() }, want: "use of closed network connection"},
		"taken": {do: func(a, b *Conn) {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			require.NoError(t, err)
			t.Cleanup(func() { unix.Close(fd) })
			name := "@gosdp/1/" + a.LocalAddr().String() + "/" + a.RemoteAddr().String()
			require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: name}))
		}, want: "another process has the socket"},
	} {
		for _, dialled := range []bool{true, false} {
			if (name == "taken" || name == "limit") && !dialled {
				continue // an acceptor asks once it has found somebody
			}
			t.Run(name, func(t *testing.T) {
				withSelf(t)
				a, b := tcpPair(t)
				a.Move(dialled, &v.p)
				if v.do != nil {
					v.do(a, b)
				}
				ctx := v.ctx
				if ctx == nil {
					ctx = t.Context()
				}
				err := a.Meet(ctx, 10*time.Millisecond)
				if assert.Error(t, err) {
					assert.Equal(t, 1, strings.Count(err.Error(), v.want), err)
				}
				assert.False(t, a.isMeeting())
				if name == "closed" {
					return
				}
				say(t, a, b, "goes on")
				say(t, b, a, "goes on")
				if name == "nobody" || name == "cancelled" {
					b.Move(!dialled, &Policy{})
					for !a.moved() {
						say(t, a, b, "ping")
						say(t, b, a, "pong")
					}
				}
			})
		}
	}
}

// TestMeetEndsAfterARefusal: a peer that was turned away does not come again, so Meet does not wait until its limit.
func TestMeetEndsAfterARefusal(t *testing.T) {
	a, b := tcpPair(t)
	a.Move(true, &Policy{})
	b.Move(false, &Policy{})
	done := make(chan error, 1)
	go func() { done <- a.Meet(t.Context(), time.Hour) }()
	for {
		b.TryMeet() // is turned away: it is in this process
		select {
		case err := <-done:
			assert.EqualError(t, err, "peer is this process")
			return
		default:
			unix.Poll(nil, 1)
		}
	}
}

// TestPeerDiesInMeet: Meet ends before its limit when the peer does, however far they have come; the Conn reports the end.
func TestPeerDiesInMeet(t *testing.T) {
	for _, dialled := range []bool{true, false} {
		for steps := range 4 {
			withSelf(t)
			a, b := tcpPair(t)
			a.Move(dialled, &Policy{})
			b.Move(!dialled, &Policy{})
			if dialled {
				a, b = b, a
				a.TryMeet()
			}
			for range steps {
				b.TryMeet()
				a.TryMeet()
			}
			if a.linked.Load() != nil {
				continue // that is TestPeerDiesAfterWriting
			}
			b.stepMu.Lock()
			b.endMeeting()
			b.stepMu.Unlock()
			die(b)
			assert.Error(t, a.Meet(t.Context(), time.Hour), "%t %d", dialled, steps)
			_, err := a.Read(make([]byte, 1))
			assert.Equal(t, io.EOF, err)
		}
	}
}

// TestMeetsAgain: attempts that find nobody, or are broken off, do not keep the ends from meeting later.
func TestMeetsAgain(t *testing.T) {
	withSelf(t)
	a, b := tcpPair(t)
	a.Move(true, &Policy{})
	b.policy = &Policy{} // but nobody looks after it as after a young connection
	before := openFiles(t)
	for range 10 {
		assert.Equal(t, errNobody, a.Meet(t.Context(), time.Millisecond))
		_, err := b.TryMeet()
		require.NoError(t, err)
		met, err := a.TryMeet() // invites
		require.NoError(t, err)
		require.False(t, met)
		_, err = b.TryMeet() // says hello
		require.NoError(t, err)
		require.True(t, b.isMeeting())
		a.meetsNow(0)
		require.False(t, a.isMeeting())
		for b.isMeeting() {
			b.TryMeet()
		}
	}
	assert.LessOrEqual(t, openFiles(t), before+1) // the seeker's socket is kept
	done := make(chan error)
	go func() { done <- b.Meet(t.Context(), time.Minute) }()
	require.NoError(t, a.Meet(t.Context(), time.Minute))
	require.NoError(t, <-done)
	move(t, a, b)
}

// TestCloseWriteBesideAMove: a CloseWrite at any step of a Write that moves does not lose what was written, and the peer
// sees the end.
func TestCloseWriteBesideAMove(t *testing.T) {
	for _, at := range []string{"to join", "to send", "to publish", "published", "moved", "looked", "heard the recall", "sent a rest", "to be home"} {
		for _, leaves := range []bool{false, true} {
			a, b := linkedPair(t)
			if leaves {
				move(t, a, b)
			} else {
				say(t, b, a, "x")
			}
			closed := make(chan error, 1)
			var begun atomic.Bool // no sync.Once: CloseWrite waits for those who come to the step
			onStep = func(name string) {
				if name == at && !begun.Swap(true) {
					go func() { closed <- a.CloseWrite() }()
					for !a.is(writeShut) {
						runtime.Gosched()
					}
				}
			}
			written := make(chan int, 1)
			go func() {
				total := 0
				for i := range 50 {
					n, err := a.Write([]byte{byte(total), byte(total + 1), byte(total + 2)})
					if total += n; err != nil {
						break
					}
					if leaves && i == 20 {
						a.Leave()
					}
				}
				if !begun.Swap(true) {
					closed <- a.CloseWrite()
				}
				written <- total
			}()
			all, err := io.ReadAll(b)
			assert.NoError(t, err)
			for i, v := range all {
				require.EqualValues(t, byte(i), v)
			}
			assert.Equal(t, <-written, len(all), at)
			assert.NoError(t, <-closed)
			a.Close()
			b.Close()
			for a.linked.Load() != nil || b.linked.Load() != nil {
				runtime.Gosched()
			}
			onStep = nil
		}
	}
}

// TestFileBesideTraffic: a connection whose descriptor is taken while both ends exchange messages on a restless connection
// loses nothing, and stays on TCP.
func TestFileBesideTraffic(t *testing.T) {
	for range 20 {
		a, b := restlessPair(t)
		echoed := make(chan error, 1)
		go func() {
			_, err := io.Copy(b, struct{ io.Reader }{b})
			echoed <- err
			b.CloseWrite()
		}()
		taken := make(chan error, 1)
		for i := range 2000 {
			say := [2]byte{byte(i), byte(i >> 8)}
			_, err := a.Write(say[:])
			require.NoError(t, err)
			if i == 1000 {
				go func() {
					f, err := a.File()
					if err == nil {
						f.Close()
					}
					taken <- err
				}()
			}
			var heard [2]byte
			_, err = io.ReadFull(a, heard[:])
			require.NoError(t, err)
			require.Equal(t, say, heard)
		}
		assert.NoError(t, <-taken)
		assert.Equal(t, "tcp", a.Device())
		assert.Equal(t, errGiven, a.Why())
		require.NoError(t, a.CloseWrite())
		assert.NoError(t, <-echoed)
		a.Close()
		b.Close()
	}
}

// TestTotals: the totals are what the program has read and written, at every place of a connection.
func TestTotals(t *testing.T) {
	a, b := tcpPair(t)
	var n uint64
	check := func() {
		t.Helper()
		for _, c := range []*Conn{a, b} {
			r, w := c.Totals()
			assert.Equal(t, [2]uint64{n, n}, [2]uint64{r, w})
		}
	}
	both := func() {
		say(t, a, b, "ping")
		say(t, b, a, "pong")
		n += 4
		check()
	}
	for range 3 {
		both()
		attach(t, a, b)
		for range 4 {
			both()
		}
		for _, c := range []*Conn{a, b} {
			_, err := c.Write([]byte("unread"))
			require.NoError(t, err)
			assert.Equal(t, "shm", c.Device())
		}
		assert.Equal(t, 6, a.Unread())
		_, w := a.Totals()
		assert.Equal(t, n+6, w)
		_, err := io.ReadFull(a, make([]byte, 3))
		require.NoError(t, err)
		assert.Equal(t, 3, a.Unread())
		bringHome(t, a, b)
		assert.Zero(t, a.Unread())
		_, err = io.ReadFull(a, make([]byte, 3))
		require.NoError(t, err)
		_, err = io.ReadFull(b, make([]byte, 6))
		require.NoError(t, err)
		n += 6
		check()
	}
}

// unwatch takes connections from the monitor.
func unwatch(conns ...*Conn) {
	monitor.mu.Lock()
	defer monitor.mu.Unlock()
	for _, c := range conns {
		delete(monitor.conns, c)
	}
}

// TestHesitates: a ring that is full does not grow while its reader may make room.
func TestHesitates(t *testing.T) {
	before := hesitate
	defer func() { hesitate = before }()
	hesitate = time.Hour
	a, b := linkedPair(t)
	move(t, a, b)
	unwatch(a, b)
	written := make(chan error, 1)
	data := pattern(1, shm.Largest/4)
	go func() {
		_, err := a.Write(data)
		written <- err
	}()
	w := &a.linked.Load().writer
	for !w.ring.Sleeps() {
		require.Empty(t, written, "the Write has not waited")
		runtime.Gosched()
	}
	got := make([]byte, len(data))
	_, err := io.ReadFull(b, got)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(data, got))
	require.NoError(t, <-written)
	assert.False(t, w.grown)
}

// TestShrinks: a ring that has grown returns the memory, and its share of the budget, once that is not needed.
func TestShrinks(t *testing.T) {
	var taken atomic.Int64
	p := &Policy{
		Take: func(n int) bool { taken.Add(int64(n)); return true },
		Give: func(n int) { taken.Add(-int64(n)) },
	}
	a, b := withPolicy(t, p, &Policy{})
	attach(t, a, b)
	move(t, a, b)
	unwatch(a, b) // on a slow machine it would find them idle
	data := pattern(1, shm.Largest/2)
	for range 3 {
		_, err := a.Write(data)
		require.NoError(t, err)
		l := a.linked.Load()
		assert.EqualValues(t, shm.Medium+shm.Largest, taken.Load())
		l.shrink()
		assert.EqualValues(t, shm.Medium+shm.Largest, taken.Load(), "bytes are unread there")
		got := make([]byte, len(data))
		_, err = io.ReadFull(b, got)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(data, got))
		for taken.Load() != shm.Medium { // the monitor may be about to do it
			l.shrink()
		}
		l.shrink()
		assert.EqualValues(t, shm.Medium, taken.Load())
	}
	_, err := a.Write(data)
	require.NoError(t, err)
	a.Close()
	assert.Zero(t, taken.Load())
}

// TestAllow: a process of another user is refused unless the policy allows it, and Meet says so.
func TestAllow(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("missing: root")
	}
	const user = 12345
	for _, allowed := range []bool{false, true} {
		for _, dials := range []bool{true, false} {
			asked := make(chan uint32, 100)
			p := &Policy{Allow: func(uid uint32) bool { asked <- uid; return allowed }}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			file, err := ln.(*net.TCPListener).File()
			require.NoError(t, err)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "STREAM_MEETS="+ln.Addr().String(), "STREAM_DIALS="+strconv.FormatBool(dials), "STREAM_USER="+strconv.Itoa(user))
			cmd.ExtraFiles = []*os.File{file}
			cmd.Stderr = os.Stderr
			require.NoError(t, cmd.Start())
			var c net.Conn
			if dials {
				c, err = ln.Accept()
			} else {
				c, err = net.Dial("tcp", ln.Addr().String())
			}
			require.NoError(t, err)
			ln.Close()
			file.Close()
			s := New(c.(*net.TCPConn))
			s.Move(!dials, p)
			ctx, cancel := context.WithCancel(t.Context())
			met := make(chan error)
			go func() { met <- s.Meet(ctx, time.Minute) }()
			assert.EqualValues(t, user, <-asked)
			if allowed {
				require.NoError(t, <-met)
				_, err = io.ReadFull(s, make([]byte, 5))
				assert.NoError(t, err)
			} else {
				for s.Why() == errQuiet { // a dialler goes on listening
					runtime.Gosched()
				}
				cancel()
				<-met
				assert.EqualError(t, s.Why(), "peer runs as user 12345, this process as user 0")
				if !dials {
					assert.EqualError(t, s.nobody(), "peer runs as user 12345, this process as user 0", "a meeting to which nobody comes")
				}
				_, err = io.ReadFull(s, make([]byte, 5))
				assert.NoError(t, err, "on TCP")
			}
			cancel()
			s.Close()
			cmd.Wait()
		}
	}
}

func init() {
	addr := os.Getenv("STREAM_MEETS")
	if addr == "" {
		return
	}
	var c net.Conn
	user, err := strconv.Atoi(os.Getenv("STREAM_USER"))
	if err == nil {
		err = syscall.Setuid(user)
	}
	if err != nil {
		panic(err)
	}
	dials := os.Getenv("STREAM_DIALS") == "true"
	if dials {
		c, err = net.Dial("tcp", addr)
	} else {
		var f net.Listener
		if f, err = net.FileListener(os.NewFile(3, "")); err == nil {
			c, err = f.Accept()
		}
	}
	if err != nil {
		panic(err)
	}
	s := New(c.(*net.TCPConn))
	s.Move(dials, &Policy{Allow: func(uint32) bool { return true }})
	s.Meet(context.Background(), time.Second)
	s.Write([]byte("hello"))
	s.Read(make([]byte, 1))
	os.Exit(0)
}

// BenchmarkMove is what it costs an accepted connection that it may move, if it closes before anybody looks.
func BenchmarkMove(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer ln.Close()
	d, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(b, err)
	defer d.Close()
	p := &Policy{}
	b.ReportAllocs()
	for b.Loop() {
		c := New(d.(*net.TCPConn))
		c.state.Store(closed)
		c.Move(false, p)
		c.Expect()
	}
}

// TestLookIsNoReason: that a young connection is looked for before its dialler could have come says nothing about the peer.
func TestLookIsNoReason(t *testing.T) {
	_, b := tcpPair(t)
	b.Move(false, &Policy{})
	met, err := b.TryMeet()
	require.NoError(t, err)
	require.False(t, met)
	assert.Equal(t, errQuiet, b.Why())
}
