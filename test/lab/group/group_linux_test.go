package group

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKillReachesTheStopped: Kill also ends stopped processes that the program started, so a
// reader of their output sees its end. If only the program were killed, the kernel would send
// SIGHUP and SIGCONT to the stopped process, which would continue.
func TestKillReachesTheStopped(t *testing.T) {
	cmd := exec.Command("sh", "-c", `sh -c 'trap "" HUP; echo before; kill -STOP $$; echo after' & wait`)
	Own(cmd)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	cmd.Stdout = w
	require.NoError(t, cmd.Start())
	w.Close()
	out := bufio.NewReader(r)
	line, err := out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "before\n", line)
	require.NoError(t, Kill(cmd))
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	assert.Empty(t, rest)
	assert.ErrorContains(t, cmd.Wait(), "killed")
}

func TestKillAfterEnd(t *testing.T) {
	cmd := exec.Command("true")
	Own(cmd)
	require.NoError(t, cmd.Run())
	assert.Equal(t, os.ErrProcessDone, Kill(cmd))
}
