//go:build linux

package inside

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/sdp"
)

// credentialsVariable says which step of TestChangedCredentials a process performs.
const credentialsVariable = "VERBS_CREDENTIALS"

// TestChangedCredentials: a program that has called setuid does without verbs and says why. After an
// exec it uses verbs.
func TestChangedCredentials(t *testing.T) {
	const nobody = 65534
	address(t)
	step := os.Getenv(credentialsVariable)
	switch step {
	case "":
		devices, err := filepath.Glob("/dev/infiniband/*")
		require.NoError(t, err)
		for _, d := range devices {
			require.NoError(t, os.Chmod(d, 0o666))
		}
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}))
		for _, step := range []string{"setuid", "exec"} {
			child := exec.Command("/proc/self/exe", "-test.run=^TestChangedCredentials$", "-test.v")
			child.Env = append(os.Environ(), credentialsVariable+"="+step)
			output, err := child.CombinedOutput()
			require.NoError(t, err, "%s: %s", step, output)
			require.Contains(t, string(output), "--- PASS")
		}
		return
	case "setuid", "exec":
		require.NoError(t, syscall.Setgid(nobody))
		require.NoError(t, syscall.Setuid(nobody))
	}
	if step == "exec" {
		t.Setenv(credentialsVariable, "executed")
		require.NoError(t, syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
	}
	require.Equal(t, nobody, os.Getuid())
	cfg := *onVerbs
	cfg.Devices = []string{"verbs", "iwarp"}
	for range 20 { // on several threads
		client, server := pair(t, &cfg)
		for _, c := range []*sdp.Conn{client, server} {
			if stats := c.Stats(); step == "setuid" {
				assert.Equal(t, "iwarp", stats.Device)
				assert.Contains(t, stats.Declined["verbs"], "credentials changed")
			} else {
				assert.Equal(t, "verbs", stats.Device, "%v", stats.Declined)
			}
		}
		_, err := io.WriteString(client, "hello")
		require.NoError(t, err)
		b := make([]byte, 5)
		_, err = io.ReadFull(server, b)
		require.NoError(t, err)
		assert.Equal(t, "hello", string(b))
	}
}
