package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosdp/gosdp/examples/internal/devices"
	"github.com/gosdp/gosdp/examples/internal/process"
	"github.com/gosdp/gosdp/examples/internal/programs"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { programs.Main(m, "-serve", main) }

// writeTree makes a small tree with names and sizes that are difficult for servers and
// URLs.
func writeTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"index.html":            []byte("<p>not to be redirected</p>"),
		"deep/er/index.html":    []byte("<p>nor this</p>"),
		"empty":                 nil,
		"a name with %20 and ü": []byte("escaped"),
		"what#is.go":            []byte("package fragment"),
		"large":                 bytes.Repeat([]byte("0123456789abcde\n"), 1<<17),
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, content, 0o644))
	}
	return dir
}

func TestBothStacksFetchEveryFile(t *testing.T) {
	dir := writeTree(t)
	var rows []string
	programs.Again(func() bool {
		var out bytes.Buffer
		require.NoError(t, compare("localhost", dir, 3, &out))
		rows = strings.Split(strings.TrimSpace(out.String()), "\n")[3:]
		require.Len(t, rows, 2)
		return strings.Fields(rows[0])[1] != devices.Plain
	})
	for i, name := range []string{"sdp", "tcp"} {
		columns := strings.Fields(rows[i])
		require.Equal(t, name, columns[0])
		require.Equal(t, name == "tcp", columns[1] == devices.Plain, "device %s", columns[1])
		require.Equal(t, "6", columns[3], "files")
		require.Equal(t, "0", columns[7], "mismatches")
	}
}

func TestChangedFileIsAMismatch(t *testing.T) {
	dir := writeTree(t)
	files, err := readTree(dir)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "empty"), []byte("no more"), 0o644))
	require.NoError(t, os.Remove(filepath.Join(dir, "large")))

	address, stop, err := process.Start(nil, "-serve", "sdp", "-dir", dir)
	require.NoError(t, err)
	r := fetch(overSDP, address, files, 2)
	require.NoError(t, stop())
	require.Len(t, r.mismatches, 2)
	require.ErrorContains(t, verdict("sdp", r), "2 files differ")
}

func TestPlainConnectionIsNotSDP(t *testing.T) {
	address, stop, err := process.Start(nil, "-serve", "tcp", "-dir", writeTree(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, stop()) }()
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	require.Equal(t, devices.Plain, devices.Of(conn))
	require.ErrorContains(t, verdict("sdp", result{devices: []string{"iwarp", devices.Plain}}), "fell back")
	require.NoError(t, verdict("tcp", result{devices: []string{devices.Plain}}))
}

func TestServerThatCannotServeIsReported(t *testing.T) {
	_, _, err := process.Start(nil, "-serve", "sdp", "-dir", filepath.Join(t.TempDir(), "absent"))
	require.ErrorContains(t, err, "the server: exit status 1")
}
