package proxy

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/localpeer"
)

// TestStoppedRouteWaitsQuietly for a client that is on its way up, and may stay silent.
func TestStoppedRouteWaitsQuietly(t *testing.T) {
	p, _ := running(t, 0)
	server := says(t, "word")
	require.NoError(t, p.Apply("", []Route{route(t, "sdp://127.0.0.1:0", "tcp://"+server)}))
	e := p.entrances["sdp://127.0.0.1:0"]
	c, err := net.Dial("tcp", e.ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	time.Sleep(500 * time.Millisecond) // it is accepted
	spent := func() time.Duration {
		var u unix.Rusage
		require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before, begin := spent(), time.Now()
	require.NoError(t, p.Apply("", nil))
	select {
	case <-e.ended:
	case <-time.After(10 * time.Second):
		t.Fatal("it goes on")
	}
	took := time.Since(begin)
	assert.Greater(t, took, time.Second/2, "it has waited for the client")
	assert.Less(t, spent()-before, took/2)
}

// TestReloadWhereSDPIsOff does not make clients believe that a route serves SDP.
func TestReloadWhereSDPIsOff(t *testing.T) {
	t.Setenv("SDP_DEVICES", "tcp")
	p, _ := running(t, 0)
	server := says(t, "word")
	address := freeAddress(t)
	for _, network := range []string{TCP, Auto} {
		require.NoError(t, p.Apply("", []Route{route(t, network+"://"+address, "tcp://"+server)}))
	}
	e := p.entrances["auto://"+address]
	require.NotNil(t, e.raw)
	assert.False(t, localpeer.Marked(e.raw, localpeer.Listener))
}
