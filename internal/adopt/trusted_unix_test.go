//go:build unix

package adopt

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCacheOfOthersIsNotUsed(t *testing.T) {
	tc, o := fake(t), Options{Cache: t.TempDir()}
	goroot, err := GOROOT(t.Context(), tc, o)
	require.NoError(t, err)
	for _, dir := range []string{o.Cache, goroot} {
		require.NoError(t, os.Chmod(dir, 0o777))
		_, err = GOROOT(t.Context(), tc, o)
		require.ErrorContains(t, err, dir+" may be written by every user")
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to give a directory away")
	}
	for _, dir := range []string{o.Cache, goroot} {
		require.NoError(t, os.Chown(dir, 12345, 12345))
		_, err = GOROOT(t.Context(), tc, o)
		require.ErrorContains(t, err, dir+" belongs to the user 12345")
		require.NoError(t, os.Chown(dir, 0, 0))
	}
}

// TestLinkedParts has the sources elsewhere, as Debian's packages do.
func TestLinkedParts(t *testing.T) {
	tc, o := fake(t), Options{Cache: t.TempDir()}
	share := t.TempDir()
	src := filepath.Join(tc.GOROOT, "src")
	require.NoError(t, os.Rename(src, filepath.Join(share, "src")))
	require.NoError(t, os.Symlink(filepath.Join(share, "src"), src))
	first, err := GOROOT(t.Context(), tc, o)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(first, "src/net/sdp_hook.go"))
	require.NoError(t, os.WriteFile(filepath.Join(share, "src/net/extra.go"), []byte("package net\n"), 0o644))
	second, err := GOROOT(t.Context(), tc, o)
	require.NoError(t, err)
	require.NotEqual(t, first, second, "a change behind the link was not noticed")
}
