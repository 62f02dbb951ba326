package rules

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func writeFile(t *testing.T, text []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "sdp.conf")
	require.NoError(t, os.WriteFile(name, text, 0o600))
	return name
}

func TestLoad(t *testing.T) {
	name := writeFile(t, []byte("use tcp client * *:*\n"))
	s, err := Load(name)
	require.NoError(t, err)
	assert.Equal(t, name, s.File)
	assert.Len(t, s.Rules, 1)
	s, err = Load(writeFile(t, nil))
	require.NoError(t, err)
	assert.Empty(t, s.Rules)
}

func TestLoadRefuses(t *testing.T) {
	for _, v := range []struct{ what, name, want string }{
		{"a missing file", filepath.Join(t.TempDir(), "none"), ""},
		{"a directory", t.TempDir(), "is a directory"},
		{"a large file", writeFile(t, bytes.Repeat([]byte("# comment\n"), maxSize/10+1)), "file exceeds 1 MB"},
		{"a program", writeFile(t, []byte("\x7fELF\x00\x00\n\x00")), `unknown statement`},
		{"a device", os.DevNull, "not a regular file"},
	} {
		s, err := Load(v.name)
		assert.Nil(t, s, v.what)
		require.IsType(t, Errors{}, err, v.what)
		assert.ErrorContains(t, err, v.name, v.what)
		assert.ErrorContains(t, err, v.want, v.what)
	}
}

func TestLargestFile(t *testing.T) {
	s, err := Load(writeFile(t, append(bytes.Repeat([]byte("#\n"), maxSize/2-11), "use tcp client * *:*\n"...)))
	require.NoError(t, err)
	assert.Len(t, s.Rules, 1)
	if runtime.GOOS != "linux" {
		return
	}
	// The size that is stated may be wrong.
	_, err = Load("/proc/self/maps")
	assert.ErrorContains(t, err, "/proc/self/maps:1: unknown statement")
}
