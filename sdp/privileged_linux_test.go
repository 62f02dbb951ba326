package sdp

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestSetUserIDProgramsIgnoreTheEnvironment has another user start a program of root. Each variable
// has an effect on the same program without that right.
func TestSetUserIDProgramsIgnoreTheEnvironment(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to make a set-user-ID program")
	}
	dir, err := os.MkdirTemp("", "sdp") // not below go test's directory, which others may not enter
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chown(dir, 12345, 12345)) // and no other user finds such a program
	require.NoError(t, os.Chmod(dir, 0o500))
	var where unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &where))
	none, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	require.NoError(t, err)
	if where.Flags&unix.ST_NOSUID != 0 || none != 0 {
		t.Skip("missing: a directory for temporary files, and a process, that allow set-user-ID programs")
	}
	binary, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	for name, mode := range map[string]uint32{"ordinary": 0o755, "set-user-ID": 0o4755} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), binary, 0o755))
		require.NoError(t, unix.Chmod(filepath.Join(dir, name), mode))
	}
	rules := filepath.Join(dir, "rules")
	require.NoError(t, os.WriteFile(rules, []byte("use tcp both * *:*\n"), 0o644))

	// told runs the program, and returns what it printed and left in a directory.
	told := func(t *testing.T, program string, variable ...string) string {
		t.Helper()
		left := filepath.Join(dir, "left")
		require.NoError(t, os.Mkdir(left, 0o700))
		defer os.RemoveAll(left)
		require.NoError(t, os.Chown(left, 12345, 12345))
		cmd := exec.Command(filepath.Join(dir, program))
		cmd.Dir = left
		cmd.Env = append([]string{roleVariable + "=environment", "GORACE=atexit_sleep_ms=0"}, variable...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		defer stdin.Close()
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		entries, err := os.ReadDir(left)
		require.NoError(t, err)
		for _, e := range entries {
			out = fmt.Append(out, "left ", e.Name(), "\n")
		}
		return string(out)
	}
	const sdp = "hello over *sdp.Conn\n"
	require.Equal(t, "privileged: false\n"+sdp, told(t, "ordinary"))
	for _, v := range []string{
		devicesVariable + "=nonsense", thresholdVariable + "=nonsense", peersVariable + "=nonsense", busyPollVariable + "=nonsense",
		memoryVariable + "=nonsense", shmDirVariable + "=nonsense", servicesVariable + "=nonsense",
		configVariable + "=" + rules, statusVariable + "=" + filepath.Join(dir, "left"), dumpVariable + "=" + filepath.Join(dir, "left", "dump"),
	} {
		t.Run(v, func(t *testing.T) {
			assert.NotEqual(t, "privileged: false\n"+sdp, told(t, "ordinary", v), "it has no effect")
			assert.Equal(t, "privileged: true\n"+sdp, told(t, "set-user-ID", v))
		})
	}
}
