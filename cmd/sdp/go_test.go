package main

import (
	"bytes"
	"os"
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
	} {
		flags, packages := atVersion(strings.Fields(c.args))
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
	require.True(t, (&goTool{args: []string{"build"}}).builds())
	require.True(t, (&goTool{args: []string{"-C", "dir", "test"}}).builds())
	require.False(t, (&goTool{args: []string{"vet", "."}}).builds())
}

func TestGoOptions(t *testing.T) {
	o, args := goOptions([]string{"-verbs", "build", "-verbs"})
	require.True(t, o.Verbs)
	require.Equal(t, []string{"build", "-verbs"}, args)
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
	require.Contains(t, errs.String(), "a go command is missing")
	errs.Reset()
	require.Equal(t, 2, run([]string{"env", "extra"}, &out, &errs)) // which says so on standard error
	require.Equal(t, 0, run([]string{"help", "go"}, &out, &errs))
	require.Contains(t, out.String(), "docs/adoption.md")
}
