package listener

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
