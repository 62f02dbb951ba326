package sdp

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/events"
	"github.com/gosdp/gosdp/internal/observe"
)

// stderrOf returns what f writes to standard error. Nothing counts as having been said before.
func stderrOf(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	stderr := os.Stderr
	os.Stderr = w
	observe.Complaints.Clear()
	events.Process = events.Limiter{} // of what earlier tests have logged
	defer func() {
		os.Stderr = stderr
		observe.Complaints.Clear()
	}()
	f()
	w.Close()
	said, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(said)
}

// TestVariablesInVain: a program without a Logger says once on standard error which variables have no effect,
// and why. One with a Logger logs it.
func TestVariablesInVain(t *testing.T) {
	names := unknown
	defer func() { unknown = names }()
	unknown = func() []string { return unknownIn([]string{"SDP_DEVICE=tcp", "SDP_MEMORY=1M", "HOME=/"}) }
	var text bytes.Buffer
	said := stderrOf(t, func() {
		for _, log := range []*slog.Logger{slog.New(slog.NewTextHandler(&text, nil)), nil, nil} {
			_, err := (&Config{Logger: log}).devices(false)
			require.NoError(t, err)
		}
	})
	assert.Equal(t, "sdp: environment variable ignored: SDP_DEVICE: unknown name\n", said)
	assert.Contains(t, text.String(), `msg="sdp: environment variable ignored" variable=SDP_DEVICE error="unknown name"`)
}

// TestUnknownVariables are names of the library's form that it does not have.
func TestUnknownVariables(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
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
		got, err := (*Config)(nil).threshold()
		assert.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
	t.Setenv(thresholdVariable, "1MB")
	_, err := Dial("tcp", "127.0.0.1:1")
	assert.EqualError(t, err, "dial tcp: SDP_ZCOPY_THRESHOLD=1MB: not a number of bytes, such as 512M")
}
