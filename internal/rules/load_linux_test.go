package rules

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestLoadRefusesAFileOfAnotherUser. Root may read every file, so its thread reads as another user.
func TestLoadRefusesAFileOfAnotherUser(t *testing.T) {
	name := writeFile(t, nil)
	require.NoError(t, os.Chmod(name, 0))
	if os.Geteuid() == 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		require.NoError(t, unix.Setfsuid(65534))
		defer unix.Setfsuid(0)
	}
	_, err := os.ReadFile(name)
	require.ErrorIs(t, err, os.ErrPermission)
	_, err = Load(name)
	assert.EqualError(t, err, name+": permission denied")
}
