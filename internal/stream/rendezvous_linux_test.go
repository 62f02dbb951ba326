package stream

import (
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
	"golang.org/x/sys/unix"
)

// withPolicy returns a pair that may move, by policies of both ends.
func withPolicy(t testing.TB, p, q *Policy) (a, b *Conn) {
	t.Helper()
	withSelf(t)
	a, b = tcpPair(t)
	a.Move(true, p)
	b.Move(false, q)
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
			before := MovesTotal()
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				a, b := tcpPair(t)
				a.Move(true, p)
				b.Move(false, p)
				return a, b, func() { a.Close(); b.Close() }, nil
			})
			assert.Greater(t, MovesTotal(), before)
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
		none := len(children.conns) == 0 && !children.rings
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
		"limit":     {p: Policy{Admit: func() error { return os.ErrPermission }}, want: "permission denied"},
		"pinned": {do: func(a, b *Conn) {
			f, err := a.File()
			require.NoError(t, err)
			f.Close()
		}, want: errPinned.Error()},
		"closed": {do: func(a, b *Conn) { a.Close() }, want: "use of closed network connection"},
		"taken": {do: func(a, b *Conn) {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			require.NoError(t, err)
			t.Cleanup(func() { unix.Close(fd) })
			name := "@gosdp/1/" + a.LocalAddr().String() + "/" + a.RemoteAddr().String()
			require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: name}))
		}, want: "bind: address already in use"},
	} {
		for _, dialled := range []bool{true, false} {
			if name == "taken" && !dialled {
				continue
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
				assert.EqualError(t, a.Meet(ctx, 10*time.Millisecond), v.want)
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
