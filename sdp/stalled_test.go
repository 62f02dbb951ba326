package sdp

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/handshake"
)

// stalling resets the next connections, as a server does that has no place for them.
type stalling struct {
	*net.TCPListener
	resets atomic.Int32
}

func (l *stalling) Accept() (net.Conn, error) {
	for {
		c, err := l.TCPListener.Accept()
		if err != nil || l.resets.Add(-1) < 0 {
			return c, err
		}
		c.Read(make([]byte, 1)) // the client is connected
		handshake.Abort(c)
	}
}

// serving calls Server.
type serving struct{ net.Listener }

func (l serving) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Server(context.Background(), c, asking(nil))
}

// TestResetPeerIsAskedAgain, and no more often than is useful.
func TestResetPeerIsAskedAgain(t *testing.T) {
	for _, v := range []struct {
		network string
		resets  int32
		sdp     bool
	}{
		{"tcp", 0, true},
		{"tcp", 1, false},
		{"sdp", handshake.MaxRequests - 1, true},
		{"sdp", handshake.MaxRequests, false},
	} {
		t.Run(fmt.Sprint(v.network, " ", v.resets), func(t *testing.T) {
			below, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			slow := &stalling{TCPListener: below.(*net.TCPListener)}
			slow.resets.Store(v.resets)
			echo(t, serving{slow})
			d := Dialer{Config: asking(nil)}
			c, err := d.Dial(v.network, slow.Addr().String())
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
	_, err := Client(context.Background(), conn, &Config{ReplyTimeout: 20 * time.Millisecond})
	var plain *NotSDPError
	require.ErrorAs(t, err, &plain)
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
}
