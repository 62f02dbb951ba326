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

// BuildRelay builds the relay from its directory, with the race detector if the
// test has it, and returns its path.
func BuildRelay(t testing.TB, dir string) (path string) {
	t.Helper()
	gocmd := Need(t, "go")
	// go test must know what its result depends on, before it reuses one.
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

// Relay starts this project's relay, which is the program at path, and returns
// the address at which it listens. The endpoints are those of its flags. The
// test fails if it does not end well, as it does not when it was built with the
// race detector and that has found something.
func Relay(t testing.TB, path, listen, dial string, args ...string) (address string, p *Process) {
	t.Helper()
	cmd := exec.Command(path, append(args, "-listen", listen, "-dial", dial)...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0") // else each takes a second to end
	p, err := Start(t, cmd, "relaying from")
	require.NoError(t, err)
	t.Cleanup(func() {
		state := p.Stop()
		interrupted := runtime.GOOS != "windows" // where there is only killing
		assert.True(t, state.Success() || !interrupted, "the relay: %s", state)
	})
	_, rest, _ := strings.Cut(p.Ready, "://")
	address, _, _ = strings.Cut(rest, " ")
	return address, p
}
