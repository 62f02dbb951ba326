//go:build linux

package shm

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestPeerIsEnding: the memory of a process that is killed is freed before its sockets are closed. A fetch
// in between reports a reset.
func TestPeerIsEnding(t *testing.T) {
	a, b := pairOf(t, testConfig)
	defer a.Abort()
	defer b.Abort()
	child := exec.Command("true")
	require.NoError(t, child.Start())
	defer child.Wait()
	require.NoError(t, unix.Waitid(unix.P_PID, child.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)) // it stays a zombie
	a.peerPID = int32(child.Process.Pid)
	assert.ErrorIs(t, a.fetch(make([]byte, 8), 1<<20), syscall.ECONNRESET)
}
