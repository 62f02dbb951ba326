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

// tool is the package of this project's command line tool.
const tool = "github.com/gosdp/gosdp/cmd/sdp"

// BuildTool builds the tool sdp, with the race detector if the test has it, into dir and
// returns its path.
func BuildTool(t testing.TB, dir string) (path string) {
	t.Helper()
	gocmd := Need(t, "go")
	// go test must know what its result depends on, before it reuses one.
	list := exec.Command(gocmd, "list", "-deps", "-f", `{{if not .Standard}}{{range .GoFiles}}{{$.Dir}}/{{.}}
{{end}}{{range .CgoFiles}}{{$.Dir}}/{{.}}
{{end}}{{end}}`, tool)
	files, err := list.Output()
	require.NoError(t, err)
	for _, f := range strings.Fields(string(files)) {
		_, err := os.Stat(f)
		require.NoError(t, err)
	}
	path = filepath.Join(dir, "sdp.exe")
	out, err := exec.Command(gocmd, "build", "-race="+strconv.FormatBool(race), "-o", path, tool).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// Relay starts a relay, "sdp proxy" of the tool at path, and returns the address at which it listens. The endpoints are those of its flags. The
// test fails if it does not end well, as it does not when it was built with the
// race detector and that has found something.
func Relay(t testing.TB, path, listen, dial string, args ...string) (address string, p *Process) {
	t.Helper()
	cmd := exec.Command(path, append([]string{"proxy", "-listen", listen, "-dial", dial}, args...)...)
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
