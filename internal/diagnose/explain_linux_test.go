package diagnose

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/netns"
)

// explained returns what is said of a connection of plain TCP.
func explained(c net.Conn) *Path {
	var p Path
	p.explain(Inspect(), c, nil)
	return &p
}

// relayed is a connection whose other end no socket on this host is, although it has an address of
// this host: a rule of the kernel has translated it.
type relayed struct{ net.Conn }

func (relayed) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (relayed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2} }

func TestRelay(t *testing.T) {
	p := explained(relayed{})
	require.Equal(t, CodeRelay, p.Code, "%+v", p)
	require.Contains(t, p.Advice, "sdp proxy")
}

// TestKernelIsSilent about a connection of another network namespace.
func TestKernelIsSilent(t *testing.T) {
	netns.Enter(t)
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	said := make(chan *Path)
	go func() { said <- explained(c) }() // in the namespace of all others
	p := <-said
	require.Equal(t, CodeBlind, p.Code, "%+v", p)
}
