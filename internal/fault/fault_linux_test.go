package fault

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestReadable(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "truncated"))
	require.NoError(t, err)
	defer f.Close()
	page := os.Getpagesize()
	require.NoError(t, f.Truncate(int64(3*page)))
	b, err := unix.Mmap(int(f.Fd()), 0, 3*page, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	defer unix.Munmap(b)
	require.NoError(t, f.Truncate(int64(2*page)))

	require.True(t, Mapped(b))
	require.Equal(t, 2*page, Readable(b[:2*page]), "all of it is there")
	require.Equal(t, 2*page-10, Readable(b[10:]))
	require.Equal(t, 1, Readable(b[2*page-1:]))
	require.Zero(t, Readable(b[2*page:][:100]))
	require.Zero(t, Readable(b[:0]))
}

func TestReadableOfTheHeap(t *testing.T) {
	b := make([]byte, 100_000)
	require.Equal(t, len(b), Readable(b))
}
