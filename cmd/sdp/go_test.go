package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChangeDir(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"build", "."}, ""},
		{[]string{"build", "-C", "dir", "."}, "dir"},
		{[]string{"build", "-C=dir", "."}, "dir"},
		{[]string{"build", "--C=dir"}, "dir"},
		{[]string{"-C", "dir", "build"}, "dir"},
		{[]string{"run", ".", "-C", "theirs"}, ""},
		{[]string{"build", "-C"}, ""},
		{[]string{"build", "C=dir"}, ""},
		{nil, ""},
	} {
		require.Equal(t, c.want, changeDir(c.args), "%q", c.args)
	}
}

func TestAtVersion(t *testing.T) {
	for _, c := range []struct{ args, flags, packages string }{
		{"install -x example.com/p@latest", "-x", "example.com/p@latest"},
		{"install -tags a@b -x example.com/p example.com/q@v1", "-tags a@b -x", "example.com/p example.com/q@v1"},
		{"run -exec=sudo example.com/p@v1.0.0 arg", "", "example.com/p@v1.0.0"},
		{"run --exec sudo -C dir example.com/p@v1.0.0 -arg", "-C dir", "example.com/p@v1.0.0"},
		{"run . me@example.com", "", ""},
		{"run -ldflags -X=a=b@c . arg", "", ""},
		{"install ./...", "", ""},
		{"get example.com/p@latest", "", ""},
		{"install -tags", "", ""},
		{"-C dir install -x example.com/p@v1.0.0", "-C dir -x", "example.com/p@v1.0.0"},
		{"-C=dir run example.com/p@v1.0.0 me@example.com", "-C=dir", "example.com/p@v1.0.0"},
		{"-C dir", "", ""},
		{"", "", ""},
	} {
		var g goTool
		g.name, g.flags, g.rest = takeApart(strings.Fields(c.args))
		flags, packages := g.atVersion()
		require.Equal(t, strings.Fields(c.flags), append([]string{}, flags...), c.args)
		require.Equal(t, strings.Fields(c.packages), append([]string{}, packages...), c.args)
	}
}

func TestNeedsGo(t *testing.T) {
	m := needsGo.FindStringSubmatch("go: example.com/p@v1.0.0 requires go >= 1.27.1 (running go 1.26.8; GOTOOLCHAIN=local)")
	require.Equal(t, "1.27.1", m[1])
	require.Nil(t, needsGo.FindStringSubmatch("requires go >= soon"))
}

func TestBuilds(t *testing.T) {
	for args, want := range map[string]bool{"build": true, "-C dir test": true, "vet .": false, "get example.com/build": false, "": false} {
		var g goTool
		g.name, g.flags, g.rest = takeApart(strings.Fields(args))
		require.Equal(t, want, g.builds(), args)
	}
}

func TestOverlay(t *testing.T) {
	for _, c := range []struct{ goflags, args, want string }{
		{"", "build .", ""},
		{"-trimpath", "build -overlay=a.json -x .", "a.json"},
		{"-overlay=b.json", "build .", "b.json"},
		{"'-overlay=b.json' -x", "-C dir build --overlay a.json .", "a.json"},
		{"", "run . -overlay=theirs", ""},
		{"", "test . -overlay a.json -args -overlay=theirs", "a.json"},
		{"", "test . -args -overlay=theirs", ""},
		{"", "build -overlay", ""},
		{"", "build -tags overlay .", ""},
	} {
		var g goTool
		g.name, g.flags, g.rest = takeApart(strings.Fields(c.args))
		require.Equal(t, c.want, g.overlay(c.goflags), c)
	}
	dir, installation := t.TempDir(), filepath.Join(t.TempDir(), "go")
	put := func(replaced string) {
		text, err := json.Marshal(map[string]any{"Replace": map[string]string{replaced: "new.go", "a.go": "b.go"}})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "o.json"), text, 0o644))
	}
	replaced := filepath.Join(installation, "src", "os", "exec.go")
	put(replaced)
	for _, file := range []string{"o.json", filepath.Join(dir, "o.json")} {
		err := checkOverlay(file, dir, installation)
		require.ErrorContains(t, err, "overlay "+file+" replaces "+replaced+", which sdp does not compile")
		require.NotContains(t, err.Error(), "\n")
	}
	require.NoError(t, checkOverlay("", dir, installation))
	require.NoError(t, checkOverlay("none.json", dir, installation))
	for _, other := range []string{installation + "/../other.go", installation + "-copy/src/os/exec.go", "c.go"} {
		put(other)
		require.NoError(t, checkOverlay("o.json", dir, installation), other)
	}
}

func TestGoOptions(t *testing.T) {
	o, args := goOptions([]string{"-verbs", "build", "-verbs"})
	require.True(t, o.Verbs)
	require.Equal(t, []string{"build", "-verbs"}, args)
	o, args = goOptions([]string{"--verbs=true", "build"})
	require.True(t, o.Verbs)
	require.Equal(t, []string{"build"}, args)
	require.False(t, o.RDMA)
	o, args = goOptions([]string{"-iwarp", "-verbs=true", "build", "-iwarp=false"})
	require.True(t, o.RDMA && o.Verbs)
	require.Equal(t, []string{"build", "-iwarp=false"}, args)
	o, _ = goOptions([]string{"-verbs", "-verbs=false"})
	require.False(t, o.Verbs)
	_, args = goOptions([]string{"-verbs=nonsense"})
	require.Len(t, args, 1)
}

// TestEnvWithVerbs refuses what sdp go refuses.
func TestEnvWithVerbs(t *testing.T) {
	t.Setenv("CGO_ENABLED", "0")
	t.Setenv("SDP_GOCACHE", t.TempDir())
	for _, flag := range []string{"-verbs", "-verbs=true"} {
		var out, errs bytes.Buffer
		require.Equal(t, 1, run([]string{"env", flag}, &out, &errs))
		require.Empty(t, out.String())
		require.Contains(t, errs.String(), "sdp env: -verbs needs cgo: set CGO_ENABLED=1\n")
	}
}

func TestQuote(t *testing.T) {
	require.Equal(t, `'/a b'\''c'`, quote("/a b'c"))
}

func TestVersionOfFiles(t *testing.T) {
	var out, errs bytes.Buffer
	exe, err := os.Executable()
	require.NoError(t, err)
	require.Equal(t, 1, run([]string{"version", exe}, &out, &errs)) // this test has no SDP
	require.Equal(t, 1, run([]string{"version", t.TempDir()}, &out, &errs))
	require.Equal(t, 0, run([]string{"version"}, &out, &errs))
	require.Empty(t, errs.String())
}

func TestWrongUse(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, 1, run([]string{"go"}, &out, &errs))
	require.Contains(t, errs.String(), "missing go command")
	errs.Reset()
	require.Equal(t, 2, run([]string{"env", "extra"}, &out, &errs)) // which says so on standard error
	require.Equal(t, 0, run([]string{"help", "go"}, &out, &errs))
	require.Contains(t, out.String(), "docs/adoption.md")
}
