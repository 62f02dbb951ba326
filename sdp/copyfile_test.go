package sdp

import (
	"bytes"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCopyOfAFileGoesOn: after a deadline, io.Copy of the same file goes on where it was, as over TCP.
func TestCopyOfAFileGoesOn(t *testing.T) {
	content := make([]byte, 48<<20) // more than both ends hold, on any device
	for i := range content {
		content[i] = byte(i / 251)
	}
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
		c, s := pair(t)
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
	c, _ := pair(t)
	r := &buffered{Reader: bytes.NewReader(make([]byte, 48<<20))}
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := c.ReadFrom(r)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	assert.False(t, r.sought)
}

// TestErrorsAsTCPs compares the texts of errors after Close.
func TestErrorsAsTCPs(t *testing.T) {
	type conn interface {
		net.Conn
		CloseRead() error
		CloseWrite() error
		SetReadBuffer(int) error
		SetWriteBuffer(int) error
		SetLinger(int) error
		SetNoDelay(bool) error
		SetKeepAlive(bool) error
	}
	texts := func(c conn) (texts []string) {
		require.NoError(t, c.Close())
		for _, call := range []func() error{
			func() error { _, err := c.Read(make([]byte, 1)); return err },
			func() error { _, err := c.Write(make([]byte, 1)); return err },
			func() error { return c.SetDeadline(time.Now()) },
			func() error { return c.SetReadDeadline(time.Now()) },
			func() error { return c.SetWriteDeadline(time.Now()) },
			func() error { return c.SetReadBuffer(4096) },
			func() error { return c.SetWriteBuffer(4096) },
			func() error { return c.SetLinger(1) },
			func() error { return c.SetNoDelay(true) },
			func() error { return c.SetKeepAlive(true) },
			c.CloseRead, c.CloseWrite, c.Close,
		} {
			ends := strings.NewReplacer(c.LocalAddr().String(), "local", c.RemoteAddr().String(), "remote")
			texts = append(texts, ends.Replace(call().Error()))
		}
		return texts
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	tcp, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	c, _ := pair(t)
	assert.Equal(t, texts(tcp.(conn)), texts(c))
}
