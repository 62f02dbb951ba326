package policy

import (
	"bytes"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/events"
	"github.com/gosdp/gosdp/internal/timing"
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
		p    Policy
		near bool
	}{
		{"nothing is allowed", Policy{Devices: iwarp, named: true}, false},
		{"allowed", Policy{Devices: iwarp, named: true, probe: allowed}, true},
		{"no device", Policy{SHM: true, named: true, probe: allowed}, false},
		{"the default devices", Policy{SHM: true, Devices: iwarp, probe: allowed}, false},
		{"an empty list", Policy{Devices: iwarp, named: true, probe: []netip.Prefix{}}, false},
	} {
		assert.Equal(t, v.near, v.p.MayAsk(far, near), v.name)
		assert.False(t, v.p.MayAsk(near, far), v.name)
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
		got, err := (&Options{Probe: v.program}).probe()
		if v.err != "" {
			assert.EqualError(t, err, v.err)
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
		{"-1s", time.Minute, 0, "SDP_HANDSHAKE_TIMEOUT=-1s: must be positive"},
	} {
		t.Setenv(handshakeVariable, v.environment)
		p, err := New(&Options{HandshakeTimeout: v.program}, TCP, false)
		if v.err != "" {
			assert.EqualError(t, err, v.err)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, v.want, p.HandshakeTimeout)
	}
}

// TestPrivilegedProgramsIgnoreTheEnvironment.
func TestPrivilegedProgramsIgnoreTheEnvironment(t *testing.T) {
	assert.False(t, privileged(), "the test is not")
	was := Privileged
	defer func() { Privileged = was }()
	Privileged = func() bool { return true }
	t.Setenv(devicesVariable, "nonsense")
	t.Setenv(thresholdVariable, "nonsense")
	t.Setenv(peersVariable, "nonsense")
	_, err := New(nil, TCP, false)
	assert.NoError(t, err)
}

// TestBusyPollIsSet: the program goes before the environment. In both, 0 means the default, and a negative
// time that waits do not poll.
func TestBusyPollIsSet(t *testing.T) {
	for _, v := range []struct {
		environment string
		program     time.Duration
		want        time.Duration
	}{
		{"", 0, 0},
		{"0", 0, 0},
		{"-1s", 0, -time.Second},
		{"50us", 0, 50 * time.Microsecond},
		{"1s", time.Millisecond, time.Millisecond},
		{"50us", -1, -1},
		{"-1s", time.Millisecond, time.Millisecond},
	} {
		t.Setenv(busyPollVariable, v.environment)
		got, err := (&Options{BusyPoll: v.program}).busyPoll()
		require.NoError(t, err)
		assert.Equal(t, v.want, got, "%+v", v)
	}
	for _, bad := range []string{"-1", "x", "50", "99999999999"} {
		t.Setenv(busyPollVariable, bad)
		_, err := New(&Options{BusyPoll: 1}, TCP, false)
		assert.ErrorContains(t, err, "SDP_BUSY_POLL="+bad)
	}
}

// TestReplyTimeout: on network sdp a Dial waits for as long as it may, unless the program has said for how long.
func TestReplyTimeout(t *testing.T) {
	for _, v := range []struct {
		network string
		options *Options
		want    time.Duration
	}{
		{"tcp", nil, time.Second},
		{"tcp", &Options{ReplyTimeout: time.Minute}, time.Minute},
		{"sdp", nil, timing.Demand},
		{"sdp", new(Options), timing.Demand},
		{"sdp", &Options{ReplyTimeout: time.Millisecond}, time.Millisecond},
	} {
		n, err := ParseNetwork(v.network)
		require.NoError(t, err)
		p, err := New(v.options, n, n.Only)
		require.NoError(t, err)
		assert.Equal(t, v.want, p.ReplyTimeout, "%v", v)
	}
}

// TestUnknownVariablesAreNamed once on standard error if the program has no Logger, and otherwise in its log.
func TestUnknownVariablesAreNamed(t *testing.T) {
	names := unknown
	defer func() { unknown = names }()
	unknown = func() []string { return unknownIn([]string{"SDP_DEVICE=tcp", "SDP_MEMORY=1M", "HOME=/"}) }
	var text bytes.Buffer
	said := stderrOf(t, func() {
		for _, log := range []*slog.Logger{slog.New(slog.NewTextHandler(&text, nil)), nil, nil} {
			_, err := New(&Options{Logger: log}, TCP, false)
			require.NoError(t, err)
		}
	})
	assert.Equal(t, "sdp: environment variable ignored: SDP_DEVICE: unknown name\n", said)
	assert.Contains(t, text.String(), `msg="sdp: environment variable ignored" variable=SDP_DEVICE error="unknown name"`)
}

// TestUnknownVariables are names of the library's form that it does not have.
func TestUnknownVariables(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	var environment []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(SDP_[A-Z_]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		environment = append(environment, m[1]+"=1")
	}
	require.Greater(t, len(environment), 10)
	assert.Empty(t, unknownIn(environment), "documented")
	assert.Empty(t, unknownIn([]string{
		"SDP_MOVE=at-once", "SDP_REPORT=/f", "SDP_GOCACHE=/d", "GOSDP_LAB=1", "SDPX=1",
		"SDP_SERVICE_HOST=10.0.0.1", "SDP_SERVICE_PORT=7000", "SDP_PORT_7000_TCP=tcp://10.0.0.1:7000", // Kubernetes
	}))
	assert.Equal(t, []string{"SDP_DEVICE", "SDP_"}, unknownIn([]string{"SDP_DEVICE=tcp", "SDP_=1"}))
}

// TestThresholdVariable takes the units of the other variables.
func TestThresholdVariable(t *testing.T) {
	for text, want := range map[string]int{"": 0, "1M": 1 << 20, "-1": -1, "16384": 16384} {
		t.Setenv(thresholdVariable, text)
		got, err := (*Options)(nil).threshold()
		assert.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
	t.Setenv(thresholdVariable, "1MB")
	_, err := New(nil, TCP, false)
	assert.EqualError(t, err, "SDP_ZCOPY_THRESHOLD=1MB: not a number of bytes, such as 512M")
}

// stderrOf returns what f writes to standard error. Nothing counts as having been said before.
func stderrOf(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	stderr := os.Stderr
	os.Stderr = w
	events.Process = events.Limiter{} // of what earlier tests have said
	defer func() {
		os.Stderr = stderr
		events.Process = events.Limiter{}
	}()
	f()
	w.Close()
	said, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(said)
}
