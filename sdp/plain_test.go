package sdp

import (
	"context"
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
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/wire"
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
	cfg := (&Config{ReplyTimeout: time.Second, PlainTTL: time.Minute}).filled()
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
		{"silence", silent(time.Second), silenceTTL},
		{"silence in a wait that the context cut short", silent(time.Second - 1), 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				peers.until = nil
				a := attempt{cfg: cfg}
				a.remember(from{remote: someone}, v.err)
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

// TestMayAsk is what may be asked whether it speaks SDP, on a machine without RDMA
// hardware.
func TestMayAsk(t *testing.T) {
	near, far := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("198.51.100.1")
	iwarp, shm := []wire.Device{wire.DeviceIWARP}, []wire.Device{wire.DeviceSHM}
	allowed := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for _, v := range []struct {
		name string
		d    devices
		near bool
	}{
		{"nothing is allowed", devices{usable: iwarp, named: true}, false},
		{"allowed", devices{usable: iwarp, named: true, probe: allowed}, true},
		{"no device gets there", devices{usable: shm, named: true, probe: allowed}, false},
		{"the default devices", devices{usable: shm, probe: allowed}, false},
		{"an empty list", devices{usable: iwarp, named: true, probe: []netip.Prefix{}}, false},
	} {
		assert.Equal(t, v.near, v.d.mayAsk(far, near), v.name)
		assert.False(t, v.d.mayAsk(near, far), v.name)
	}
}

func TestProbeSetting(t *testing.T) {
	for _, v := range []struct {
		environment string
		program     []netip.Prefix
		want        []netip.Prefix
		err         string
	}{
		{"", nil, nil, ""},
		{"10.0.0.0/8, fd00::/8,192.0.2.1", nil, []netip.Prefix{
			netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("192.0.2.1/32"),
		}, ""},
		{"10.0.0.0/8", []netip.Prefix{}, []netip.Prefix{}, ""},
		{"ten", nil, nil, `SDP_PEERS=ten: "ten" is no address and no prefix`},
		{"ten", []netip.Prefix{}, nil, `SDP_PEERS=ten: "ten" is no address and no prefix`},
	} {
		t.Setenv(peersVariable, v.environment)
		got, err := (&Config{Probe: v.program}).probe()
		if v.err != "" {
			assert.EqualError(t, err, v.err)
			_, err = Dial("tcp", "127.0.0.1:1")
			assert.EqualError(t, err, "dial tcp: "+v.err)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, v.want, got)
	}
}

// TestPrivilegedProgramsIgnoreTheEnvironment.
func TestPrivilegedProgramsIgnoreTheEnvironment(t *testing.T) {
	assert.False(t, privileged(), "the test is not")
	was := secure
	defer func() { secure = was }()
	secure = func() bool { return true }
	t.Setenv(devicesVariable, "nonsense")
	t.Setenv(thresholdVariable, "nonsense")
	t.Setenv(peersVariable, "nonsense")
	_, err := new(Config).devices(false)
	assert.NoError(t, err)
}

// TestCancelIsHeard while the Reply is waited for.
func TestCancelIsHeard(t *testing.T) {
	told := make(chan struct{})
	//lint:ignore SA1019 programs use it
	d := Dialer{NetDialer: &net.Dialer{Cancel: told}}
	ctx, stop := d.bounded(context.Background())
	defer stop()
	assert.NoError(t, ctx.Err())
	close(told)
	<-ctx.Done()
}
