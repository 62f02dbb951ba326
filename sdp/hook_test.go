package sdp

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/sdp/stats"
)

// TestDialHooks: the hooks of a context and of the one that it was made from are called, and those of no other one.
func TestDialHooks(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	var called []string
	named := func(name string) func(stats.Dial) {
		return func(e stats.Dial) { called = append(called, name+" "+e.Network) }
	}
	outer := WithDialHook(t.Context(), named("outer"))
	inner := WithDialHook(outer, named("inner"))
	d := Dialer{Config: &Config{Devices: []string{"tcp"}}}
	c, err := d.DialContext(inner, "tcp4", ln.Addr().String())
	require.NoError(t, err)
	c.Close()
	assert.Equal(t, []string{"inner tcp4", "outer tcp4"}, called)
	_, err = d.DialContext(outer, "sdp", ln.Addr().String())
	require.Error(t, err)
	assert.Equal(t, "outer sdp", called[2])
	_, err = d.DialContext(t.Context(), "nonsense", ln.Addr().String())
	require.Error(t, err)
	assert.Len(t, called, 3)
}

// TestDialHookKnowsTheHandshake: why it ended, if the connection is plain.
func TestDialHookKnowsTheHandshake(t *testing.T) {
	address, _ := serve(t, func(c *net.TCPConn) {
		io.WriteString(c, "another protocol")
		io.Copy(io.Discard, c)
	})
	var events []stats.Dial
	ctx := WithDialHook(t.Context(), func(e stats.Dial) { events = append(events, e) })
	c, err := (&Dialer{Config: asking(nil)}).DialContext(ctx, "tcp", address)
	require.NoError(t, err)
	defer c.Close()
	require.Len(t, events, 1)
	assert.Equal(t, stats.Dial{Network: "tcp", Address: address, Duration: events[0].Duration, Plain: stats.PlainPeer, Cause: events[0].Cause}, events[0])
	assert.ErrorContains(t, events[0].Cause, `peer at `+address+` does not speak SDP: answered "another protocol"`)
}

// TestDialHookKnowsTheDevice that a connection over RDMA uses.
func TestDialHookKnowsTheDevice(t *testing.T) {
	ln, err := engineListen()
	require.NoError(t, err)
	defer ln.Close()
	var events []stats.Dial
	ctx := WithDialHook(t.Context(), func(e stats.Dial) { events = append(events, e) })
	c, s, err := bothEnds(ln, func(address string) (net.Conn, error) {
		return (&Dialer{Config: overEngine(nil)}).DialContext(ctx, "sdp", address)
	})
	require.NoError(t, err)
	defer c.Close()
	defer s.Close()
	require.Len(t, events, 1)
	assert.Equal(t, stats.Dial{Network: "sdp", Address: ln.Addr().String(), Duration: events[0].Duration, Device: engineDevice}, events[0])
}
