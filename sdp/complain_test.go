package sdp

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/events"
)

// TestVariablesInVain: a program without a Logger says once on standard error why it does not serve
// its status, or dumps nothing. One with a Logger logs it.
func TestVariablesInVain(t *testing.T) {
	serve, begin, stderr := serveStatusOnce, dumpOnce, os.Stderr
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	os.Stderr = w
	complaints.Clear()
	events.Process = events.Limiter{} // of what earlier tests have logged
	defer func() {
		serveStatusOnce, dumpOnce, os.Stderr = serve, begin, stderr
		complaints.Clear()
	}()
	serveStatusOnce = func() error { return errors.New("no directory") }
	dumpOnce = func() error { return errors.New("the file exists") }
	var text bytes.Buffer
	for _, log := range []*slog.Logger{slog.New(slog.NewTextHandler(&text, nil)), nil, nil} {
		serveIfAsked(log)
		dumpIfAsked(log)
	}
	w.Close()
	said, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "sdp: status socket not served: SDP_STATUS: no directory\n"+
		"sdp: dump not started: SDP_DUMP: the file exists\n", string(said))
	assert.Contains(t, text.String(), `msg="sdp: status socket not served" variable=SDP_STATUS error="no directory"`)
	assert.Contains(t, text.String(), `msg="sdp: dump not started" variable=SDP_DUMP error="the file exists"`)
}
