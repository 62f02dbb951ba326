package engine

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fewUnread returns the ends of a connection of which the second leaves little unread.
func fewUnread(t *testing.T) (c, s *Conn) {
	clients, servers := pairs(t, 1, &Config{ReadBuffer: 64 << 10})
	return clients[0], servers[0]
}

// TestCopyOfAFileGoesOn: after a deadline, io.Copy of the same file goes on where it was, as over TCP.
func TestCopyOfAFileGoesOn(t *testing.T) {
	content := random(4 << 20) // more than both ends hold
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	for _, limited := range []bool{false, true} {
		f, err := os.Open(path)
		require.NoError(t, err)
		defer f.Close()
		var r io.Reader = f
		if limited {
			r = io.LimitReader(f, int64(len(content)))
		}
		c, s := fewUnread(t)
		require.NoError(t, c.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
		first, err := io.Copy(c, r)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		at, err := f.Seek(0, io.SeekCurrent)
		require.NoError(t, err)
		assert.Equal(t, first, at)

		require.NoError(t, c.SetWriteDeadline(time.Time{}))
		read := make(chan []byte, 1)
		go func() {
			b, err := io.ReadAll(s)
			assert.NoError(t, err)
			read <- b
		}()
		rest, err := io.Copy(c, r)
		require.NoError(t, err)
		assert.EqualValues(t, len(content), first+rest)
		require.NoError(t, c.CloseWrite())
		assert.True(t, bytes.Equal(content, <-read))
	}
}

// buffered is a reader that is no file, although it has a file's methods.
type buffered struct {
	fs.File
	*bytes.Reader
	sought bool
}

func (b *buffered) Read(p []byte) (int, error) { return b.Reader.Read(p) }

func (b *buffered) Seek(offset int64, whence int) (int64, error) {
	b.sought = true
	return b.Reader.Seek(offset, whence)
}

// TestOnlyFilesAreGivenBack: a reader may have read ahead of what it returns.
func TestOnlyFilesAreGivenBack(t *testing.T) {
	c, _ := fewUnread(t)
	r := &buffered{Reader: bytes.NewReader(make([]byte, 4<<20))}
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := c.ReadFrom(r)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	assert.False(t, r.sought)
}
