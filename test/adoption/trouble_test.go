package adoption

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A cache directory without room, or one that cannot be written, fails in one line, leaves nothing
// after and makes no program.
func TestCacheWithoutRoom(t *testing.T) {
	want(t, "all")
	if out, err := try(t, t.TempDir(), env(), "unshare", "-rm", "true"); err != nil {
		t.Skipf("missing: permission to make mount namespaces: %s", out)
	}
	dir := echoModule(t, nil)
	for options, reason := range map[string]string{"size=4m": "no space left on device", "ro": "read-only file system"} {
		t.Run(options, func(t *testing.T) {
			cache := t.TempDir()
			out, err := try(t, dir, env("SDP_GOCACHE="+cache), "unshare", "-rm", "sh", "-c",
				`mount -t tmpfs -o "mode=700,$1" none "$SDP_GOCACHE" || exit 99
				"$0" build -o program .; echo "status $?"; ls -A "$SDP_GOCACHE"`, sdp(t), options)
			require.NoError(t, err, out)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			require.Len(t, lines, 2, out)
			require.Regexp(t, "^sdp build: creating the patched go.*: "+reason+"$", lines[0])
			require.Equal(t, "status 1", lines[1])
			require.NoFileExists(t, filepath.Join(dir, "program"))
		})
	}
}

// A build that is interrupted while it makes the changed Go does no harm to the next one.
func TestInterrupted(t *testing.T) {
	want(t, "all")
	for _, s := range []os.Signal{os.Interrupt, os.Kill} {
		t.Run(s.String(), func(t *testing.T) {
			dir, connections, cache := echoModule(t, nil), newReport(t), t.TempDir()
			environ := env("SDP_GOCACHE="+cache, atOnce, connections.env())
			var out bytes.Buffer
			cmd := exec.Command(sdp(t), "build", "-o", "program", ".")
			cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, environ, &out, &out
			require.NoError(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			parts := filepath.Join(cache, ".making-*", "bin", "*")
			for begun := []string(nil); len(begun) == 0; begun, _ = filepath.Glob(parts) {
				select {
				case err := <-ended:
					require.Fail(t, "it ended before it was interrupted", "%v: %s", err, out.String())
				case <-time.After(time.Millisecond):
				}
			}
			require.NoError(t, cmd.Process.Signal(s))
			require.Error(t, <-ended)
			left, err := os.ReadDir(cache)
			require.NoError(t, err)
			if s == os.Interrupt {
				require.Empty(t, left)
				require.Regexp(t, "^sdp build: creating the patched go.*: interrupted\n$", out.String())
			} else {
				require.Len(t, left, 1)
				require.Contains(t, left[0].Name(), ".making-")
			}
			require.NoFileExists(t, filepath.Join(dir, "program"))

			run(t, dir, environ, sdp(t), "build", "-o", "program", ".")
			require.Contains(t, run(t, dir, environ, filepath.Join(dir, "program")), "echoed")
			require.Equal(t, 1, connections.count(t, "accept", "shm"))
		})
	}
}
