package localpeer

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUnixAnnouncer has sockets in the file system, by two names, and abstract ones.
func TestUnixAnnouncer(t *testing.T) {
	dir := t.TempDir()
	for _, v := range [][2]string{
		{filepath.Join(dir, "s"), filepath.Dir(dir) + "/./" + filepath.Base(dir) + "/s"},
		{"@gosdp-test-" + filepath.Base(dir), "@gosdp-test-" + filepath.Base(dir)},
	} {
		at, also := &net.UnixAddr{Net: "unix", Name: v[0]}, &net.UnixAddr{Net: "unix", Name: v[1]}
		assert.Zero(t, UnixAnnouncer(at))
		ln, err := net.ListenUnix("unix", at)
		require.NoError(t, err)
		assert.Zero(t, UnixAnnouncer(at), "it is plain")
		a, err := AnnounceUnix(at)
		require.NoError(t, err)
		assert.Equal(t, os.Getpid(), UnixAnnouncer(at))
		assert.Equal(t, os.Getpid(), UnixAnnouncer(also))
		_, err = AnnounceUnix(at)
		assert.Error(t, err, "it is another's")
		for range 300 { // more than wait for anybody to accept them
			require.Equal(t, os.Getpid(), UnixAnnouncer(at))
		}
		assert.NoError(t, a.Close())
		assert.Error(t, a.Close())
		assert.Zero(t, UnixAnnouncer(at))
		ln.Close()
	}
	_, err := AnnounceUnix(&net.UnixAddr{Net: "unix", Name: "@" + strings.Repeat("x", 100)})
	assert.Error(t, err)
	_, err = AnnounceUnix(&net.UnixAddr{Net: "unix", Name: filepath.Join(dir, "missing")})
	assert.Error(t, err)
}

// TestUnixDialler has the server see who connects.
func TestUnixDialler(t *testing.T) {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	defer ln.Close()
	for _, local := range []*net.UnixAddr{nil, UnixDialler(), UnixDialler()} {
		c, err := net.DialUnix("unix", local, ln.Addr().(*net.UnixAddr))
		require.NoError(t, err)
		defer c.Close()
		s, err := ln.Accept()
		require.NoError(t, err)
		defer s.Close()
		assert.Equal(t, os.Getpid(), UnixServer(c))
		assert.Equal(t, local != nil, IsUnixDialler(s.RemoteAddr().(*net.UnixAddr)))
	}
}
