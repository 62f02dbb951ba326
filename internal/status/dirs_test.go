//go:build unix

package status

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDirsAreNamedAfterTheirUser(t *testing.T) {
	below := t.TempDir()
	own := filepath.Join(below, dirName+strconv.Itoa(os.Geteuid()))
	require.NoError(t, os.Mkdir(own, 0o700))
	require.NoError(t, os.Mkdir(own+"0", 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(below, dirName+"x"), 0o700))
	require.Equal(t, []string{own}, dirsBelow(below))
}
