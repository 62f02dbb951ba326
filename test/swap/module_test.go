package main

import (
	"archive/zip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serve makes the go command find the test module as example.com/echo@v1.0.0, in a new module
// cache. It finds all other modules in the real cache or through the real proxy.
func serve(t *testing.T) {
	t.Helper()
	env, err := goTool{path: "go"}.variables(t.Context(), "GOMODCACHE", "GOPROXY", "GOFLAGS")
	require.NoError(t, err)
	proxy := t.TempDir()
	dir := filepath.Join(proxy, "example.com", "echo", "@v")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, text := range map[string]string{
		"v1.0.0.info": `{"Version":"v1.0.0"}`,
		"v1.0.0.mod":  files["go.mod"],
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	f, err := os.Create(filepath.Join(dir, "v1.0.0.zip"))
	require.NoError(t, err)
	defer f.Close()
	z := zip.NewWriter(f)
	for name, text := range files {
		w, err := z.Create("example.com/echo@v1.0.0/" + name)
		require.NoError(t, err)
		_, err = io.WriteString(w, text)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	t.Setenv("GOPROXY", fileURL(proxy)+","+fileURL(filepath.Join(env["GOMODCACHE"], "cache", "download"))+","+env["GOPROXY"])
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOFLAGS", env["GOFLAGS"]+" -modcacherw") // so that the cache can be removed
	t.Setenv("GOSUMDB", "off")
}

func fileURL(dir string) string {
	path := filepath.ToSlash(dir)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // on Windows
	}
	return "file://" + path
}

func TestDownloadedModule(t *testing.T) {
	b := newFixture(t)
	b.dir, b.module = "", "example.com/echo@v1.0.0"
	serve(t)
	program := filepath.Join(t.TempDir(), "prog.exe")
	for _, args := range []string{"go build -o " + program + " ./cmd", "go test -count=1 ./external"} {
		s := b.swap
		require.NoError(t, s.run(t.Context(), strings.Fields(args)), &b.out)
		b.requireClean(t)
	}
	assert.FileExists(t, program)
	assert.Equal(t, []string{"accept " + device(), "dial " + device()}, b.connections(t))
}

func TestMissingModule(t *testing.T) {
	b := newFixture(t)
	serve(t)
	t.Setenv("GOPROXY", "off")
	b.dir, b.module = "", "example.com/echo@v1.0.1"
	assert.ErrorContains(t, b.swap.run(t.Context(), []string{"go", "test", "./..."}), "example.com/echo@v1.0.1")
	b.requireClean(t)
}

func TestOlderModuleKeepsItsBehaviour(t *testing.T) {
	var m goMod
	m.Go = "1.20"
	assert.Equal(t, []string{"-godebug=default=go1.20"}, m.keepGoDebug("1.25.0"))
	m.Go = "1.25.1"
	assert.Empty(t, m.keepGoDebug("1.25.0"))
}
