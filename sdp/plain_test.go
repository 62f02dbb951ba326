package sdp

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/environ"
	"github.com/gosdp/gosdp/wire"
)

// TestMayAsk is what may be asked whether it speaks SDP, on a machine without RDMA
// hardware.
func TestMayAsk(t *testing.T) {
	near, far := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("198.51.100.1")
	iwarp := []wire.Device{wire.DeviceIWARP}
	allowed := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for _, v := range []struct {
		name string
		d    devices
		near bool
	}{
		{"nothing is allowed", devices{usable: iwarp, named: true}, false},
		{"allowed", devices{usable: iwarp, named: true, probe: allowed}, true},
		{"no device", devices{shm: true, named: true, probe: allowed}, false},
		{"the default devices", devices{shm: true, usable: iwarp, probe: allowed}, false},
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
		{"ten", nil, nil, `SDP_PEERS=ten: "ten" is neither an address nor a prefix`},
		{"ten", []netip.Prefix{}, nil, `SDP_PEERS=ten: "ten" is neither an address nor a prefix`},
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

// TestHandshakeTimeoutSetting: the program's over the environment's over the default.
func TestHandshakeTimeoutSetting(t *testing.T) {
	for _, v := range []struct {
		environment   string
		program, want time.Duration
		err           string
	}{
		{"", 0, 5 * time.Second, ""},
		{"250ms", 0, 250 * time.Millisecond, ""},
		{"250ms", time.Minute, time.Minute, ""},
		{"5", 0, 0, "SDP_HANDSHAKE_TIMEOUT=5: not a time, such as 10s or 50us"},
		{"-1s", time.Minute, 0, "SDP_HANDSHAKE_TIMEOUT=-1s: must not be negative"},
	} {
		t.Setenv(handshakeVariable, v.environment)
		set, err := (&Config{HandshakeTimeout: v.program}).settings(network{name: "tcp", tcp: "tcp"}, false)
		if v.err != "" {
			assert.EqualError(t, err, v.err)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, v.want, set.HandshakeTimeout)
	}
}

// TestPrivilegedProgramsIgnoreTheEnvironment.
func TestPrivilegedProgramsIgnoreTheEnvironment(t *testing.T) {
	assert.False(t, environ.Secure(), "the test is not privileged")
	was := environ.Secure
	defer func() { environ.Secure = was }()
	environ.Secure = func() bool { return true }
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
