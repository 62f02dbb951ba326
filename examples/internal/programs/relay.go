package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// BuildRelay builds the relay from its directory and returns its path. It uses the race
// detector if the test does.
func BuildRelay(t testing.TB, dir string) (path string) {
	t.Helper()
	gocmd := Need(t, "go")
	// Reading the sources tells go test that its cached result depends on them.
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		_, err := os.Stat(f)
		require.NoError(t, err)
	}
	path = filepath.Join(t.TempDir(), "relay.exe")
	out, err := exec.Command(gocmd, "build", "-race="+strconv.FormatBool(race), "-o", path, dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// Relay starts this project's relay, the program at path, and returns its address. listen
// and dial are the relay's flags. The test fails if the relay fails. A relay built with
// the race detector fails if that found a race.
func Relay(t testing.TB, path, listen, dial string, args ...string) (address string, p *Process) {
	t.Helper()
	cmd := exec.Command(path, append(args, "-listen", listen, "-dial", dial)...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0") // by default, exiting takes a second
	p, err := Start(t, cmd, "relaying from")
	require.NoError(t, err)
	t.Cleanup(func() {
		state := p.Stop()
		interrupted := runtime.GOOS != "windows" // where processes can only be killed
		assert.True(t, state.Success() || !interrupted, "the relay: %s", state)
	})
	_, rest, _ := strings.Cut(p.Ready, "://")
	address, _, _ = strings.Cut(rest, " ")
	return address, p
}
