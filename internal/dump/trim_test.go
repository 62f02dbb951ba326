package dump

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTrim cuts a file anywhere and completes it.
func TestTrim(t *testing.T) {
	b := appendHeader(nil, "whose")
	begin := len(b)
	for range 3 {
		b = appendPacket(b, &packet{data: []byte("word" + strings.Repeat("-", 200))}) // longer than the end
	}
	packet := (len(b) - begin) / 3
	path := filepath.Join(t.TempDir(), "dump")
	for n := 0; n <= len(b); n++ {
		require.NoError(t, os.WriteFile(path, b[:n], 0o600))
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		require.NoError(t, Trim(f, errors.New("the reason")))
		require.NoError(t, f.Close())
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		requireBlocks(t, got)
		if n < begin {
			require.NotContains(t, string(got), "word")
			continue
		}
		packets := (n - begin) / packet
		require.True(t, bytes.HasPrefix(got, b[:begin+packets*packet]))
		require.Equal(t, packets, bytes.Count(got, []byte("word")))
		require.Equal(t, "The dump ended because it could not be written: the reason.", EndComment(got))
	}
}

// requireBlocks: the file consists of whole blocks, each with its length at both ends.
func requireBlocks(t *testing.T, b []byte) {
	t.Helper()
	for len(b) > 0 {
		require.GreaterOrEqual(t, len(b), 12)
		n := int(order.Uint32(b[4:]))
		require.True(t, n >= 12 && n <= len(b), "a block of %d bytes, %d are left", n, len(b))
		require.EqualValues(t, n, order.Uint32(b[n-4:]))
		b = b[n:]
	}
}
