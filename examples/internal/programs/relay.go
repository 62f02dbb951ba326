package programs

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
