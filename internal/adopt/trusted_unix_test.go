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
		for _, mode := range []os.FileMode{0o777, 0o777 | os.ModeSticky} {
			require.NoError(t, os.Chmod(dir, mode))
			_, err = GOROOT(t.Context(), tc, o)
			require.ErrorContains(t, err, dir+" is writable by every user")
		}
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to give a directory away")
	}
	for _, dir := range []string{o.Cache, goroot} {
		require.NoError(t, os.Chown(dir, 12345, 12345))
		_, err = GOROOT(t.Context(), tc, o)
		require.ErrorContains(t, err, dir+" is owned by user 12345")
		require.NoError(t, os.Chown(dir, 0, 0))
	}
}

// TestCacheThatOthersCanReplace: what is above the cache counts, too, also if the tool makes the cache.
func TestCacheThatOthersCanReplace(t *testing.T) {
	tc, above := fake(t), t.TempDir()
	open := filepath.Join(above, "open")
	require.NoError(t, os.Mkdir(open, 0o755))
	o := Options{Cache: filepath.Join(open, "new", "cache")}
	try := func(mode os.FileMode) error {
		require.NoError(t, os.Chmod(open, mode))
		_, err := GOROOT(t.Context(), tc, o)
		return err
	}
	for range 2 { // the cache is missing, and then there
		require.EqualError(t, try(0o777), open+" is writable by every user (mode 777): set SDP_GOCACHE to a directory of your own, or chmod o-w")
	}
	require.NoError(t, try(0o777|os.ModeSticky))
	require.NoError(t, try(0o755))

	o.Cache = filepath.Join(above, "link")
	require.NoError(t, os.Symlink(filepath.Join(open, "new", "cache"), o.Cache))
	require.NoError(t, try(0o755))
	require.ErrorContains(t, try(0o777), open+" is writable by every user", "behind a link")
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to give a directory away")
	}
	require.NoError(t, os.Lchown(o.Cache, 12345, 12345))
	require.ErrorContains(t, try(0o755), o.Cache+" is owned by user 12345", "the link")
	o.Cache = filepath.Join(open, "new", "cache")
	require.NoError(t, os.Chown(open, 0, 12345))
	require.ErrorContains(t, try(0o775), open+" is writable by group 12345 (mode 775)")
	require.NoError(t, try(0o775|os.ModeSticky))
	require.NoError(t, os.Chown(open, 0, 0))
	require.NoError(t, try(0o775), "root's own group")
	require.NoError(t, os.Chown(o.Cache, 0, 12345))
	require.NoError(t, os.Chmod(o.Cache, 0o775|os.ModeSetgid|os.ModeSticky))
	require.ErrorContains(t, try(0o755), o.Cache+" is writable by group 12345", "others can add a changed Go")
	require.NoError(t, os.Chmod(o.Cache, 0o755))
	require.NoError(t, os.Chown(open, 12345, 12345))
	require.NoError(t, try(0o755), "root's home directory may be another user's")
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
