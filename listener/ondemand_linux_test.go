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
// whoever else accepts from the socket may not know SDP.
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
