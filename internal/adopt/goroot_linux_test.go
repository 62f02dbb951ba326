package adopt

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOtherUsersOfTheCache may use what root has made. If the rights do not let them, the error says
// that.
func TestOtherUsersOfTheCache(t *testing.T) {
	tc, o := fake(t), Options{Cache: t.TempDir()}
	goroot, err := GOROOT(t.Context(), tc, o)
	require.NoError(t, err)
	info, err := os.Stat(goroot)
	require.NoError(t, err)
	require.Equal(t, "drwxr-xr-x", info.Mode().String())

	require.NoError(t, os.Chmod(goroot, 0o600))
	defer os.Chmod(goroot, 0o755)
	if os.Geteuid() == 0 { // root's rights do not apply to it: be another user for files
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		require.NoError(t, os.Chmod(filepath.Dir(o.Cache), 0o755)) // of the test
		require.NoError(t, syscall.Setfsuid(12345))
		defer syscall.Setfsuid(0)
	}
	_, err = GOROOT(t.Context(), tc, o)
	require.ErrorContains(t, err, "patched Go not usable: stat "+goroot+"/"+usedFile+": permission denied")
}
