package observe

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

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
			ServeIfAsked(log)
			DumpIfAsked(log)
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

// TestStatusVariable is 0, 1 or a path; nothing is shown because of another value.
func TestStatusVariable(t *testing.T) {
	for _, wrong := range []string{"off", "true", "2", "a/directory"} {
		require.ErrorContains(t, serveStatusIf(wrong), "want 0, 1 or an absolute path")
	}
	require.NoError(t, serveStatusIf("0"))
	served.mu.Lock()
	defer served.mu.Unlock()
	require.Nil(t, served.server)
}

// TestDumpSaysThatItHasBegun when the connections take part that are open, and not before: what they
// carry after that is in the dump.
func TestDumpSaysThatItHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		g := &greeting{w: &said, joined: make(chan struct{})}
		go g.Write([]byte("packets"))
		synctest.Wait()
		assert.Empty(t, said.String())
		close(g.joined)
		synctest.Wait()
		assert.Equal(t, "ok\npackets", said.String())
	})
}
