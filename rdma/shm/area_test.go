//go:build linux

package shm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// memoryFile makes a memory file, sealed or not.
func memoryFile(t testing.TB, size int64, seals int) *os.File {
	t.Helper()
	fd, err := memfd()
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "memory")
	t.Cleanup(func() { f.Close() })
	_, err = f.WriteAt([]byte{layout}, 0)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(size))
	_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
	require.NoError(t, err)
	return f
}

func TestAreaOfAnotherEndIsLookedAtFirst(t *testing.T) {
	for _, v := range []struct {
		name  string
		size  int64
		seals int
		error string
	}{
		{"no seals", areaLen, 0, "has seals"},
		{"it can be cut short", areaLen, unix.F_SEAL_GROW | unix.F_SEAL_SEAL, "has seals"},
		{"it can grow", areaLen, unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL, "has seals"},
		{"more seals can come", areaLen, unix.F_SEAL_SHRINK | unix.F_SEAL_GROW, "has seals"},
		{"it cannot be written", areaLen, areaSeals | unix.F_SEAL_FUTURE_WRITE, "sealed against writing"},
		{"empty", 0, areaSeals, "has 0 bytes"},
		{"a byte short", areaLen - 1, areaSeals, "bytes, want"},
		{"a byte more", areaLen + 1, areaSeals, "bytes, want"},
	} {
		t.Run(v.name, func(t *testing.T) {
			_, err := openArea(int(memoryFile(t, v.size, v.seals).Fd()), nil)
			assert.ErrorContains(t, err, v.error)
		})
	}
	t.Run("a file", func(t *testing.T) {
		f, err := os.Create(filepath.Join(t.TempDir(), "file"))
		require.NoError(t, err)
		defer f.Close()
		require.NoError(t, f.Truncate(areaLen))
		_, err = openArea(int(f.Fd()), nil)
		assert.Error(t, err)
	})
	t.Run("a device", func(t *testing.T) {
		f, err := os.OpenFile("/dev/zero", os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close()
		_, err = openArea(int(f.Fd()), nil)
		assert.Error(t, err)
	})
}

func TestAreaCostsNothingUntilItIsWritten(t *testing.T) {
	a, f, err := newArea()
	require.NoError(t, err)
	defer unix.Close(f)
	defer a.unmap()
	blocks := func() int64 {
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(f, &st))
		return st.Blocks * 512
	}
	a.small(0)[0], a.small(1)[0] = 1, 1
	a.ctl.ways[0].idle.Store(1)
	assert.LessOrEqual(t, blocks(), int64(12<<10))
	for i := range a.big(0) {
		a.big(0)[i] = 1
	}
	assert.Greater(t, blocks(), int64(bigRing))
	giveBack(a.big(0))
	assert.LessOrEqual(t, blocks(), int64(12<<10))
	assert.Zero(t, a.big(0)[0])
}

// TestAreaIsNotMadePastTheLimit: making the area would end the process with SIGXFSZ.
func TestAreaIsNotMadePastTheLimit(t *testing.T) {
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &was))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: was.Max}))
	defer unix.Setrlimit(unix.RLIMIT_FSIZE, &was)
	_, _, err := newArea()
	assert.ErrorContains(t, err, "file size limit")
}
