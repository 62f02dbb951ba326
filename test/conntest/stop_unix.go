//go:build unix

package conntest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Stop freezes the process, and waits until every thread of it is.
func (p *Process) Stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGSTOP))
	if runtime.GOOS != "linux" {
		return // and elsewhere it takes no time to speak of
	}
	running := regexp.MustCompile(`(?m)^State:\s+[^Tt]`)
	require.Eventually(t, func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.Cmd.Process.Pid))
		require.NoError(t, err)
		for _, thread := range threads {
			if status, err := os.ReadFile(thread); err == nil && running.Match(status) {
				return false
			}
		}
		return true
	}, Soon, 100*time.Microsecond)
}
