package listener

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/localpeer"
)

// TestOnDemandIsNotAnnounced: diallers see that SDP is served only once this process accepts, because
// another process that accepts from the socket may not know SDP.
func TestOnDemandIsNotAnnounced(t *testing.T) {
	l, other := shared(t)
	announced := func() bool {
		c := dialPlain(t, l, "GET")
		end, err := localpeer.Other(c)
		require.NoError(t, err)
		return end.Listener
	}
	for range 3 {
		require.False(t, announced(), "nobody waits")
		c, err := other.Accept()
		require.NoError(t, err)
		c.Close()

		came := accepting(t, l)
		assert.True(t, announced())
		(<-came).Discard()

		came = accepting(t, l)
		l.OnDemand()
		assert.True(t, announced(), "one waits")
		(<-came).Discard()
		l.OnDemand()
	}
}

// marked reports whether the listening socket has the mark of a listener of SDP.
func marked(t *testing.T, ln net.Listener) bool {
	t.Helper()
	rc, err := ln.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	set := 0
	require.NoError(t, rc.Control(func(fd uintptr) { set, err = unix.GetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND) }))
	require.NoError(t, err)
	return set == 1
}

// TestOnDemandIsNotAnnouncedForEver: if the program does not call Accept for a while, diallers do not
// wait for it. While it waits in Accept, they see it, however long that takes.
func TestOnDemandIsNotAnnouncedForEver(t *testing.T) {
	l, other := shared(t)
	for range 2 {
		came := accepting(t, l)
		time.Sleep(fullTime * 3 / 2)
		require.True(t, marked(t, other))
		dialPlain(t, l, "GET")
		(<-came).Discard()
		require.Eventually(t, func() bool { return !marked(t, other) }, 10*time.Second, fullTime/20)
	}
}

// TestNewOnDemand takes no connection that waits already. It leaves the mark of another process that
// serves SDP, but not for ever, because that process may have ended.
func TestNewOnDemand(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	other := ln.(*net.TCPListener)
	defer other.Close()
	rc, err := other.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, localpeer.Mark(rc, localpeer.Listener))
	c, err := net.Dial("tcp", other.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	f, err := other.File()
	require.NoError(t, err)
	defer f.Close()
	ln, err = net.FileListener(f)
	require.NoError(t, err)
	l := NewOnDemand(ln, testConfig())
	defer l.Close()
	require.Eventually(t, func() bool { return !marked(t, other) }, 10*time.Second, fullTime/20)
	taken, err := other.Accept()
	require.NoError(t, err)
	taken.Close()
}

// TestOnDemandOfUnixIsNotAnnounced neither.
func TestOnDemandOfUnixIsNotAnnounced(t *testing.T) {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	require.NoError(t, err)
	l := New(ln, testConfig())
	defer l.Close()
	at := l.Addr().(*net.UnixAddr)
	require.NotZero(t, localpeer.UnixAnnouncer(at))
	l.OnDemand()
	require.Zero(t, localpeer.UnixAnnouncer(at))
	came := accepting(t, l)
	require.NotZero(t, localpeer.UnixAnnouncer(at))
	c, err := net.Dial("unix", at.Name)
	require.NoError(t, err)
	c.Close()
	(<-came).Discard()
}

// TestFullListenerIsNotAnnounced: if the program does not accept for a while, diallers do not wait for
// it, and use plain TCP.
func TestFullListenerIsNotAnnounced(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := New(ln, testConfig())
	defer l.Close()
	announced := func() bool {
		c := dialPlain(t, l, "GET")
		end, err := localpeer.Other(c)
		require.NoError(t, err)
		return end.Listener
	}
	dialled := 0
	require.Eventually(t, func() bool {
		dialled++
		return !announced()
	}, 10*time.Second, fullTime/20)
	require.Greater(t, dialled, maxAhead)
	for range dialled {
		up, err := l.Accept()
		require.NoError(t, err)
		up.Discard()
	}
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.inAccept
	}, 10*time.Second, time.Millisecond)
	assert.True(t, announced())
}

// TestClosedListenerIsNotAnnounced by the processes that share its socket, which may not know SDP.
func TestClosedListenerIsNotAnnounced(t *testing.T) {
	l, other := shared(t)
	announced := func() bool {
		c, err := net.Dial("tcp", other.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		end, err := localpeer.Other(c)
		require.NoError(t, err)
		return end.Listener
	}
	came := accepting(t, l)
	require.True(t, announced())
	(<-came).Discard()
	require.NoError(t, l.Close())
	assert.False(t, announced())
}
