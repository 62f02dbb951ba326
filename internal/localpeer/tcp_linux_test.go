package localpeer

import (
	"context"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/test/netns"
)

// marking is a Control hook.
func marking(r Role) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error { return Mark(c, r) }
}

// connected are the two ends of a connection to where ln listens; the server has not
// accepted it yet if it is nil.
func connected(t *testing.T, ln net.Listener, d net.Dialer, host string, accept bool) (client, server *net.TCPConn) {
	t.Helper()
	port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	c, err := d.Dial("tcp", net.JoinHostPort(host, port))
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	if accept {
		s, err := ln.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { s.Close() })
		server = s.(*net.TCPConn)
	}
	return c.(*net.TCPConn), server
}

// TestOther looks at each end of a connection from the other one.
func TestOther(t *testing.T) {
	require.True(t, Sighted())
	for _, multipath := range []bool{false, true} {
		for _, at := range [][3]string{
			{"tcp4", "127.0.0.1:0", "127.0.0.1"},
			{"tcp6", "[::1]:0", "::1"},
			{"tcp", ":0", "127.0.0.1"},
			{"tcp", ":0", "::1"},
			{"tcp4", "0.0.0.0:0", "127.0.0.7"},
		} {
			for _, marked := range []bool{true, false} {
				t.Run(at[0]+" "+at[1]+" "+at[2]+" multipath "+strconv.FormatBool(multipath)+" marked "+strconv.FormatBool(marked), func(t *testing.T) {
					var lc net.ListenConfig
					var d net.Dialer
					lc.SetMultipathTCP(multipath)
					if marked {
						lc.Control, d.Control = marking(Listener), marking(Dialler)
					}
					ln, err := lc.Listen(context.Background(), at[0], at[1])
					require.NoError(t, err)
					defer ln.Close()
					c, _ := connected(t, ln, d, at[2], false)
					other, err := Other(c)
					require.NoError(t, err)
					assert.Equal(t, End{Listener: marked, UID: other.UID}, other, "before it is accepted")

					accepted, err := ln.Accept()
					require.NoError(t, err)
					s := accepted.(*net.TCPConn)
					defer s.Close()
					other, err = Other(c)
					require.NoError(t, err)
					assert.Equal(t, End{Listener: marked, UID: uint32(os.Getuid()), Owned: true}, other)
					other, err = Other(s)
					require.NoError(t, err)
					assert.Equal(t, End{Dialler: marked, UID: uint32(os.Getuid()), Owned: true}, other)
				})
			}
		}
	}
}

// TestUnmark has a mark go from the socket, and from what is accepted from then on.
func TestUnmark(t *testing.T) {
	lc := net.ListenConfig{Control: marking(Listener)}
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	rc, err := ln.(*net.TCPListener).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, Unmark(rc, Listener))
	c, s := connected(t, ln, net.Dialer{Control: marking(Dialler)}, "127.0.0.1", true)
	other, err := Other(c)
	require.NoError(t, err)
	assert.False(t, other.Listener)
	rc, err = c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, Unmark(rc, Dialler))
	other, err = Other(s)
	require.NoError(t, err)
	assert.False(t, other.Dialler)
}

// TestSharedPort has a marked listener and one that is not share a port: each connection
// shows what its own end is.
func TestSharedPort(t *testing.T) {
	shared := func(_, _ string, c syscall.RawConn) (err error) {
		c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		return err
	}
	plain := net.ListenConfig{Control: shared}
	a, err := plain.Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer a.Close()
	marked := net.ListenConfig{Control: func(network, address string, c syscall.RawConn) error {
		if err := shared(network, address, c); err != nil {
			return err
		}
		return Mark(c, Listener)
	}}
	b, err := marked.Listen(context.Background(), "tcp", a.Addr().String())
	require.NoError(t, err)
	defer b.Close()
	const n = 64
	said := map[string]bool{} // client's address: its other end is marked
	for range n {
		c, _ := connected(t, a, net.Dialer{}, "127.0.0.1", false)
		other, err := Other(c)
		require.NoError(t, err)
		said[c.LocalAddr().String()] = other.Listener
	}
	counts := map[bool]int{}
	for _, at := range []struct {
		net.Listener
		marked bool
	}{{a, false}, {b, true}} {
		for client, marked := range said {
			if marked == at.marked {
				counts[marked]++
				s, err := at.Accept()
				require.NoError(t, err)
				assert.Equal(t, at.marked, said[s.RemoteAddr().String()], client)
				s.Close()
			}
		}
	}
	assert.Equal(t, n, counts[true]+counts[false])
	assert.NotZero(t, counts[true])
	assert.NotZero(t, counts[false])
}

// TestGone has the other end, or the connection itself, be there no more.
func TestGone(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c, s := connected(t, ln, net.Dialer{}, "127.0.0.1", true)
	require.NoError(t, s.SetLinger(0))
	s.Close()
	_, err = Other(c)
	assert.ErrorIs(t, err, ErrElsewhere)
	c.Close()
	_, err = Other(c)
	assert.ErrorIs(t, err, ErrElsewhere)
}

// TestOtherNamespace looks at connections of a namespace of its own, where the
// addresses and ports are those of this one.
func TestOtherNamespace(t *testing.T) {
	require.True(t, Sighted()) // from this namespace
	here, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer here.Close()
	netns.Enter(t)
	lc := net.ListenConfig{Control: marking(Listener)}
	ln, err := lc.Listen(context.Background(), "tcp4", here.Addr().String())
	require.NoError(t, err)
	defer ln.Close()
	c, s := connected(t, ln, net.Dialer{Control: marking(Dialler)}, "127.0.0.1", true)
	other, err := Other(c)
	assert.NoError(t, err)
	assert.True(t, other.Listener)
	seen := make(chan struct{})
	go func() { // in the namespace of all others
		defer close(seen)
		_, err := Other(s)
		assert.ErrorIs(t, err, ErrBlind)
	}()
	<-seen
	other, err = Other(s)
	assert.NoError(t, err)
	assert.True(t, other.Dialler)
}

func BenchmarkOther(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(b, err)
	defer c.Close()
	for b.Loop() {
		if _, err := Other(c.(*net.TCPConn)); err != nil {
			b.Fatal(err)
		}
	}
}

// TestOneOption is not the mark: other programs set one or the other.
func TestOneOption(t *testing.T) {
	for _, option := range []int{unix.IP_FREEBIND, unix.IP_BIND_ADDRESS_NO_PORT} {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, option, 1) })
			return err
		}}
		ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer ln.Close()
		c, _ := connected(t, ln, net.Dialer{}, "127.0.0.1", false)
		other, err := Other(c)
		require.NoError(t, err)
		assert.False(t, other.Listener)
	}
}

// TestSettles: the other end may become a socket while this process has no processor. One that never
// does ends the wait.
func TestSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		preempted := func() { time.Sleep(4 * settleTime) }
		end, err := settle(func() (found, error) {
			asked++
			return found{End: End{Listener: asked > 1}, unborn: asked == 1}, nil
		}, preempted)
		assert.NoError(t, err)
		assert.True(t, end.Listener)

		asked = 0
		_, err = settle(func() (found, error) { asked++; return found{unborn: true}, nil }, preempted)
		assert.ErrorIs(t, err, ErrElsewhere)
		assert.Equal(t, 2, asked)

		_, err = settle(func() (found, error) { return found{unborn: true}, nil }, func() {})
		assert.ErrorIs(t, err, ErrElsewhere, "the clock stands still")
	})
}
