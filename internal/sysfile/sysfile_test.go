package sysfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRead(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("0123456789abcdef\n", 1000) + "x"
	for name, text := range map[string]string{"empty": "", "one": " 65530\n", "long": long} {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		got, err := Read(name)
		require.NoError(t, err)
		assert.Equal(t, strings.TrimSpace(text), got)
		n, err := Lines(name)
		require.NoError(t, err)
		assert.Equal(t, strings.Count(text, "\n"), n)
	}
	_, err := Read(filepath.Join(dir, "none"))
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "none")
	_, err = Read(dir)
	assert.Error(t, err, "a directory cannot be read")
}
