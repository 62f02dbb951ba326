package sdp

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/events"
	"github.com/gosdp/gosdp/internal/policy"
)

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

// TestVariablesInVain: a program without a Logger says once on standard error which variables have no effect,
// and why. One with a Logger logs it.
func TestVariablesInVain(t *testing.T) {
	serve, begin := serveStatusOnce, dumpOnce
	defer func() { serveStatusOnce, dumpOnce = serve, begin }()
	serveStatusOnce = func() error { return errors.New("no directory") }
	dumpOnce = func() error { return errors.New("the file exists") }
	var text bytes.Buffer
	said := stderrOf(t, func() {
		for _, log := range []*slog.Logger{slog.New(slog.NewTextHandler(&text, nil)), nil, nil} {
			_, err := (&Config{Logger: log}).settings(policy.TCP, false)
			require.NoError(t, err)
		}
	})
	assert.Equal(t, "sdp: status socket not served: SDP_STATUS: no directory\n"+
		"sdp: dump not started: SDP_DUMP: the file exists\n", said)
	for _, line := range []string{
		`msg="sdp: status socket not served" variable=SDP_STATUS error="no directory"`,
		`msg="sdp: dump not started" variable=SDP_DUMP error="the file exists"`,
	} {
		assert.Contains(t, text.String(), line)
	}
}

// TestDumpAtARelativePath is refused: SDP_DUMP=1 is a mistake, and a dump has what is secret.
func TestDumpAtARelativePath(t *testing.T) {
	for _, path := range []string{"1", "dump.pcapng,size=1M"} {
		t.Setenv(policy.DumpVariable, path)
		name, _, _ := strings.Cut(path, ",")
		assert.EqualError(t, dumpAsked(), strconv.Quote(name)+": want off or an absolute path")
		assert.NoFileExists(t, name)
	}
}
