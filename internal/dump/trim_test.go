package dump

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTrim cuts a file anywhere and completes it.
func TestTrim(t *testing.T) {
	b := appendHeader(nil, "whose")
	begin := len(b)
	for range 3 {
		b = appendPacket(b, &packet{data: []byte("word")})
	}
	packet := (len(b) - begin) / 3
	for n := 0; n <= len(b); n++ {
		path := filepath.Join(t.TempDir(), "dump")
		require.NoError(t, os.WriteFile(path, b[:n], 0o600))
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		require.NoError(t, Trim(f, errors.New("the reason")))
		require.NoError(t, f.Close())
		got, err := os.ReadFile(path)
		require.NoError(t, err)
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
