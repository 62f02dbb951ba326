package sdp

import (
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stalling answers the next connections as a server does that has served them as
// plain TCP, because the Request was held up.
type stalling struct {
	net.Listener
	plain atomic.Int32
}

func (l *stalling) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || l.plain.Add(-1) < 0 {
			return c, err
		}
		c.Write([]byte("220 ready\r\n"))
		c.Close()
	}
}

// TestStalledPeerIsAskedAgain: what is known to speak SDP, and seems not to, is asked
// once more, and no more than that.
func TestStalledPeerIsAskedAgain(t *testing.T) {
	for _, v := range []struct {
		name, network string
		known         bool
		stalls        int32
		sdp           bool
	}{
		{"tcp", "tcp", true, 1, true},
		{"sdp", "sdp", true, 1, true},
		{"tcp, for longer", "tcp", true, 3, false},
		{"sdp, for longer", "sdp", true, 2, false},
		{"tcp, unknown", "tcp", false, 2, false},
		{"sdp, unknown", "sdp", false, 1, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			below, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			slow := &stalling{Listener: below}
			ln, err := NewListener(slow, patient)
			require.NoError(t, err)
			defer ln.Close()
			address := ln.Addr().String()
			forget(address) // of a listener that has had the port before
			t.Cleanup(func() { forget(address) })
			d := Dialer{Config: patient}
			if v.known {
				c, err := d.Dial("tcp", address)
				require.NoError(t, err)
				require.IsType(t, (*Conn)(nil), c)
				c.Close()
			}
			slow.plain.Store(v.stalls)
			c, err := d.Dial(v.network, address)
			if c != nil {
				defer c.Close()
			}
			switch {
			case v.sdp:
				require.NoError(t, err)
				assert.IsType(t, (*Conn)(nil), c)
			case v.network == "sdp":
				var plain *NotSDPError
				assert.ErrorAs(t, err, &plain)
			default:
				require.NoError(t, err)
				assert.IsType(t, (*net.TCPConn)(nil), c)
			}
		})
	}
}

// TestClientOfNobody: the peer does not even take the Request.
func TestClientOfNobody(t *testing.T) {
	conn, other := net.Pipe()
	defer other.Close()
	_, err := Client(conn, &Config{ReplyTimeout: 20 * time.Millisecond})
	var plain *NotSDPError
	require.ErrorAs(t, err, &plain)
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// TestFailureIsForgotten: network "sdp" learns nothing of a peer that lacks SDP, and
// does not ask twice for ever.
func TestFailureIsForgotten(t *testing.T) {
	below, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	slow := &stalling{Listener: below}
	ln, err := NewListener(slow, patient)
	require.NoError(t, err)
	defer ln.Close()
	address := ln.Addr().String()
	peers.remember(peerKey{"tcp", address}, speaksSDP, time.Minute)
	slow.plain.Store(2)
	_, err = Dial("sdp", address)
	require.Error(t, err)
	assert.Equal(t, unknown, peers.known(peerKey{"tcp", address}))
}
