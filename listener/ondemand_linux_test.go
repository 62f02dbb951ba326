package listener

import (
	"net"
	"path/filepath"
	"testing"

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

// TestNewOnDemand takes no connection that waits already.
func TestNewOnDemand(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	other := ln.(*net.TCPListener)
	defer other.Close()
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
