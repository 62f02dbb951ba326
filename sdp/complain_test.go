package sdp

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/events"
)

// stderrOf returns what f writes to standard error. Nothing counts as having been said before.
func stderrOf(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	stderr := os.Stderr
	os.Stderr = w
	complaints.Clear()
	events.Process = events.Limiter{} // of what earlier tests have logged
	defer func() {
		os.Stderr = stderr
		complaints.Clear()
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
	serve, begin, names := serveStatusOnce, dumpOnce, unknown
	defer func() { serveStatusOnce, dumpOnce, unknown = serve, begin, names }()
	serveStatusOnce = func() error { return errors.New("no directory") }
	dumpOnce = func() error { return errors.New("the file exists") }
	unknown = func() []string { return unknownIn([]string{"SDP_DEVICE=tcp", "SDP_MEMORY=1M", "HOME=/"}) }
	var text bytes.Buffer
	said := stderrOf(t, func() {
		for _, log := range []*slog.Logger{slog.New(slog.NewTextHandler(&text, nil)), nil, nil} {
			_, err := (&Config{Logger: log}).devices(false)
			require.NoError(t, err)
		}
	})
	assert.Equal(t, "sdp: environment variable ignored: SDP_DEVICE: unknown name\n"+
		"sdp: status socket not served: SDP_STATUS: no directory\n"+
		"sdp: dump not started: SDP_DUMP: the file exists\n", said)
	for _, line := range []string{
		`msg="sdp: environment variable ignored" variable=SDP_DEVICE error="unknown name"`,
		`msg="sdp: status socket not served" variable=SDP_STATUS error="no directory"`,
		`msg="sdp: dump not started" variable=SDP_DUMP error="the file exists"`,
	} {
		assert.Contains(t, text.String(), line)
	}
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

// TestDumpAtARelativePath is refused: SDP_DUMP=1 is a mistake, and a dump has what is secret.
func TestDumpAtARelativePath(t *testing.T) {
	for _, path := range []string{"1", "dump.pcapng,size=1M"} {
		t.Setenv(dumpVariable, path)
		name, _, _ := strings.Cut(path, ",")
		assert.EqualError(t, dumpAsked(), strconv.Quote(name)+": want off or an absolute path")
		assert.NoFileExists(t, name)
	}
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
