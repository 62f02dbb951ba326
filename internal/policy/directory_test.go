package policy

import (
	"bytes"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDirectorySetting(t *testing.T) {
	t.Setenv(shmDirVariable, "")
	var text bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&text, nil))

	dir, err := new(Options).directory()
	require.NoError(t, err)
	assert.Empty(t, dir)

	t.Setenv(shmDirVariable, "run/sdp")
	_, err = new(Options).directory()
	assert.EqualError(t, err, "SDP_SHM_DIR=run/sdp: not an absolute path")
	_, err = (&Options{ShmDir: "sdp"}).directory()
	assert.EqualError(t, err, "Config.ShmDir=sdp: not an absolute path")

	missing := t.TempDir() + "/none"
	t.Setenv(shmDirVariable, missing)
	for range 3 {
		dir, err = (&Options{Logger: logger}).directory()
		require.NoError(t, err)
		assert.Empty(t, dir)
	}
	assert.Equal(t, 1, strings.Count(text.String(), "shm directory unusable"), "it is reported once")
	assert.Contains(t, text.String(), missing)

	t.Setenv(shmDirVariable, "/none/either")
	said := stderrOf(t, func() {
		for range 3 {
			_, err = (*Options)(nil).directory()
			require.NoError(t, err)
		}
	})
	assert.Regexp(t, `^sdp: shm directory unusable, ignored: SDP_SHM_DIR: /none/either: .*\n$`, said, "without a Logger, once")

	if runtime.GOOS == "linux" {
		good := t.TempDir()
		dir, err = (&Options{ShmDir: good, Logger: logger}).directory()
		require.NoError(t, err)
		assert.Equal(t, good, dir, "the program goes before the environment")
	}
}
