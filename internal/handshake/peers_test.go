package handshake

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gosdp/gosdp/internal/timing"
)

var someone = netip.MustParseAddrPort("192.0.2.1:80")

func TestAnswerIsRememberedForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var peers peerTable
		assert.False(t, peers.plain(someone))
		peers.remember(someone, time.Minute)
		time.Sleep(time.Minute - 1)
		assert.True(t, peers.plain(someone))
		assert.False(t, peers.plain(netip.MustParseAddrPort("192.0.2.1:81")))
		time.Sleep(time.Nanosecond)
		assert.False(t, peers.plain(someone))
	})
}

func TestFullTableDropsWhatWouldHaveGoneFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var peers peerTable
		at := func(port int) netip.AddrPort {
			return netip.AddrPortFrom(netip.MustParseAddr("192.0.2.2"), uint16(port))
		}
		for i := range maxPeers {
			peers.remember(at(i), time.Hour)
			time.Sleep(time.Millisecond)
		}
		peers.remember(at(1), time.Hour) // again, and there is room
		assert.Len(t, peers.until, maxPeers)
		peers.remember(someone, time.Hour)
		assert.Len(t, peers.until, maxPeers)
		assert.False(t, peers.plain(at(0)))
		assert.True(t, peers.plain(at(1)))
	})
}

// from is a connection with a remote address.
type from struct {
	net.Conn
	remote netip.AddrPort
}

func (f from) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(f.remote) }

// TestEvidence is how long is remembered what an attempt has ended with.
func TestEvidence(t *testing.T) {
	cfg := &Config{ReplyTimeout: time.Second, PlainTTL: time.Minute}
	silent := func(waited time.Duration) error {
		return &NotSDPError{Err: os.ErrDeadlineExceeded, waited: waited}
	}
	for _, v := range []struct {
		name string
		err  error
		ttl  time.Duration
	}{
		{"another protocol", &NotSDPError{Err: errors.New("it answered")}, time.Minute},
		{"a close", &NotSDPError{Err: io.EOF}, time.Minute},
		{"a reset", &NotSDPError{Err: syscall.ECONNRESET}, time.Minute},
		{"silence", silent(time.Second), timing.Silence},
		{"silence in a wait that the context cut short", silent(time.Second - 1), 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				peers.until = nil
				c := Client{Config: cfg}
				c.Remember(from{remote: someone}, v.err)
				if v.ttl == 0 {
					assert.False(t, peers.plain(someone))
					return
				}
				time.Sleep(v.ttl - 1)
				assert.True(t, peers.plain(someone))
				time.Sleep(time.Nanosecond)
				assert.False(t, peers.plain(someone))
			})
		})
	}
}
