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

// BuildTool builds the tool sdp into dir and returns its path. It uses the race detector if
// the test does.
func BuildTool(t testing.TB, dir string) (path string) {
	t.Helper()
	gocmd := Need(t, "go")
	// Reading the sources tells go test that its cached result depends on them.
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

// Relay starts a relay, "sdp proxy" of the tool at path, and returns its address. listen and
// dial are its flags. The test fails if the relay fails. A relay built with the race
// detector fails if that found a race.
func Relay(t testing.TB, path, listen, dial string, args ...string) (address string, p *Process) {
	t.Helper()
	cmd := exec.Command(path, append([]string{"proxy", "-listen", listen, "-dial", dial}, args...)...)
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
