package adopt

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gosdp/gosdp"
	"github.com/stretchr/testify/require"
)

// real is the toolchain that runs this test.
var real = sync.OnceValues(func() (*Toolchain, error) { return Ask(context.Background(), "go", "", nil) })

// here returns the toolchain that runs this test. The test is skipped if it is none that is
// supported.
func here(t *testing.T) *Toolchain {
	t.Helper()
	tc, err := real()
	require.NoError(t, err)
	if err := tc.supported(); err != nil {
		t.Skip("missing: a toolchain that is supported: ", err)
	}
	return tc
}

// fake returns a toolchain with a GOROOT of a few files: package net of the real one, and a package unix
// that declares the names that the library uses.
func fake(t *testing.T) *Toolchain {
	t.Helper()
	tc := *here(t)
	to := t.TempDir()
	put := func(name string, text []byte) {
		file := filepath.Join(to, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, text, 0o755))
	}
	exe := "bin/go"
	if runtime.GOOS == "windows" {
		exe += ".exe"
	}
	put("VERSION", []byte("x"))
	put(exe, []byte("x"))
	net := make(files)
	require.NoError(t, net.read(filepath.Join(tc.GOROOT, "src/net")))
	for name, text := range net {
		put("src/net/"+name, text)
	}
	names, err := usedNames()
	require.NoError(t, err)
	text := "package unix\n\nfunc anyToSockaddr() {}\n\nfunc errnoErr() {}\n"
	for _, name := range slices.Sorted(maps.Keys(names)) {
		text += "\nfunc " + name + "() {}\n"
	}
	put(vendored+"/unix.go", []byte(text))
	tc.GOROOT = to
	return &tc
}

// usedNames returns the names of package unix that the library uses.
var usedNames = sync.OnceValues(func() (unixNames, error) {
	names := make(unixNames)
	return names, fs.WalkDir(gosdp.Sources, ".", func(file string, e fs.DirEntry, err error) error {
		if err != nil || path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(gosdp.Sources, file)
		if err != nil || !mayBuild(file, text) {
			return err
		}
		return names.add(file, text)
	})
})

func TestGOROOTIsMadeOnce(t *testing.T) {
	tc, o := fake(t), Options{Cache: t.TempDir()}
	var made sync.Map
	var all sync.WaitGroup
	for range 4 { // at once
		all.Go(func() {
			goroot, err := GOROOT(t.Context(), tc, o)
			if err == nil {
				made.Store(goroot, true)
			}
		})
	}
	all.Wait()
	n := 0
	made.Range(func(goroot, _ any) bool {
		n++
		require.FileExists(t, filepath.Join(goroot.(string), "src/net/sdp_hook.go"))
		return true
	})
	require.Equal(t, 1, n)
	entries, err := os.ReadDir(o.Cache)
	require.NoError(t, err)
	require.Len(t, entries, 1, "the others left something")
}

func TestFirstGOROOTStaysAsItIs(t *testing.T) {
	tc := fake(t)
	file := filepath.Join(tc.GOROOT, "src/net/fd_posix.go")
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	goroot, err := GOROOT(t.Context(), tc, Options{Cache: t.TempDir()})
	require.NoError(t, err)
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	changed, err := os.ReadFile(filepath.Join(goroot, "src/net/sdp_fd_posix.go"))
	require.NoError(t, err)
	require.Contains(t, string(changed), "fd.sdpRead(p)")
	others, err := os.ReadFile(filepath.Join(goroot, "src/net/fd_posix.go"))
	require.NoError(t, err)
	require.NotContains(t, string(others), "sdpRead")
	require.Contains(t, string(others), "!("+hooked+")")
}

func TestChangedInstallationIsNoticed(t *testing.T) {
	tc, o := fake(t), Options{Cache: t.TempDir()}
	first, err := GOROOT(t.Context(), tc, o)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(tc.GOROOT, "src/net/extra.go"), []byte("package net\n"), 0o644))
	second, err := GOROOT(t.Context(), tc, o)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	require.FileExists(t, filepath.Join(second, "src/net/extra.go"))
}

func TestGOROOTInsideGOROOT(t *testing.T) {
	tc, o := fake(t), Options{Cache: t.TempDir()}
	first, err := GOROOT(t.Context(), tc, o)
	require.NoError(t, err)
	inside := *tc
	inside.GOROOT = first
	second, err := GOROOT(t.Context(), &inside, o)
	require.NoError(t, err)
	require.Equal(t, first, second)
}

// TestVersions: whatever a version of Go is called, its second GOROOT may be an entry of PATH, and "sdp
// version" recognises programs, which may have been built with other experiments than the go command.
func TestVersions(t *testing.T) {
	for version, release := range map[string]string{
		"go1.26.8":                               "go1.26.8",
		"go1.27rc1":                              "go1.27rc1",
		"go1.26":                                 "go1.26",
		"go1.25.3 X:nodwarf5":                    "go1.25.3",
		"go1.25.3 X:nodwarf5,arena":              "go1.25.3",
		"go1.26.1-X:jsonv2":                      "go1.26.1",
		"go1.26.1 (Red Hat 1.26.1-2)":            "go1.26.1",
		"go1.26.1 (Red Hat 1.26.1-2) X:nodwarf5": "go1.26.1",
		"go1.26.1-fips":                          "go1.26.1",
		"go1.26.1-fips X:nodwarf5":               "go1.26.1",
		"go1.26.1+auto":                          "go1.26.1",
		"go1.26.1_vendor":                        "go1.26.1",
		`go1.26.1 "quoted {a}" v1@2`:             "go1.26.1",
		"go1.26-devel_0123abcdef Tue Nov 3 12:00:00 2026": "go1.26",
		"devel go1.27-0123abcdef Tue Nov 3 12:00:00 2026": "go1.27",
	} {
		require.NoError(t, (&Toolchain{GOVERSION: version}).supported(), version)
		hook, err := hookSource(version)
		require.NoError(t, err)
		require.Contains(t, string(hook), ";go="+release+`}"`+"\n", version)
		found, err := search(bytes.NewReader(hook), release)
		require.NoError(t, err)
		require.Equal(t, Version(), found, version)
	}
	for _, version := range []string{"go1.24.9", "go1.99.0", "go1.24.3 X:nodwarf5", "devel", "devel +0123abcdef", "gccgo 15", ""} {
		require.ErrorContains(t, (&Toolchain{GOVERSION: version}).supported(), version+" () is not supported: use one of go1.25 to ")
	}
	tc := fake(t)
	tc.GOVERSION = "go1.26.1 (Red Hat 1.26.1-2) X:nodwarf5"
	goroot, err := GOROOT(t.Context(), tc, Options{Cache: t.TempDir(), RDMA: true})
	require.NoError(t, err)
	require.Regexp(t, "^go1.26.1-iwarp-[0-9a-f]+$", filepath.Base(goroot))
}

func TestChange(t *testing.T) {
	for mode, want := range map[string]string{
		"auto": "go1.27.1", "local+auto": "go1.27.1", "go1.26.1+auto": "go1.27.1",
		"path": "go1.27.1+path", "go1.26.1+path": "go1.27.1+path",
		"local": "", "go1.26.1": "", "go1.26.1-auto": "", "": "",
	} {
		require.Equal(t, want, (&Toolchain{GOTOOLCHAIN: mode}).Change("go1.27.1"), mode)
	}
}

// TestNoCache says what to do.
func TestNoCache(t *testing.T) {
	for _, name := range []string{"HOME", "XDG_CACHE_HOME", "LocalAppData", "home"} {
		t.Setenv(name, "")
	}
	_, err := GOROOT(t.Context(), fake(t), Options{})
	require.ErrorContains(t, err, "; set SDP_GOCACHE to a directory")
}

// TestLateConstants: package unix of the oldest supported version lacks some constants.
func TestLateConstants(t *testing.T) {
	for name, value := range lateConstants {
		tc := fake(t)
		changed(t, tc, vendored+"/unix.go", "func "+name+"(", "func Other(")
		goroot, err := GOROOT(t.Context(), tc, Options{Cache: t.TempDir()})
		require.NoError(t, err)
		text, err := os.ReadFile(filepath.Join(goroot, "src", inside, "unix", "sdp_late.go"))
		require.NoError(t, err)
		require.Equal(t, "package unix\n\nconst "+name+" = "+value+"\n", string(text))
	}
}

// changed changes a file of a fake GOROOT.
func changed(t *testing.T, tc *Toolchain, name, old, new string) *Toolchain {
	t.Helper()
	file := filepath.Join(tc.GOROOT, name)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, strings.Contains(string(text), old), "%s has no %q", name, old)
	text = []byte(strings.Replace(string(text), old, new, 1))
	require.NoError(t, os.WriteFile(file, text, 0o644))
	return tc
}

func TestVariables(t *testing.T) {
	bin := filepath.Join("/cache/go1.26.8-1", "bin")
	t.Setenv("PATH", "/a:b")
	require.Equal(t, bin+string(os.PathListSeparator)+"/a:b", Variables("/cache/go1.26.8-1")[2][1])
	t.Setenv("PATH", "")
	require.Equal(t, bin, Variables("/cache/go1.26.8-1")[2][1])
}

func TestGOROOTErrors(t *testing.T) {
	cache := t.TempDir()
	file := filepath.Join(cache, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	without := func(dir string) *Toolchain {
		tc := fake(t)
		require.NoError(t, os.RemoveAll(filepath.Join(tc.GOROOT, dir)))
		return tc
	}
	for name, c := range map[string]struct {
		tc    *Toolchain
		cache string
		want  string
	}{
		"a function has other parameters": {changed(t, fake(t), "src/net/fd_posix.go", "func (fd *netFD) Read(p []byte) (n int, err error) {", "func (fd *netFD) Read(p []byte, x int) (n int, err error) {"), cache, `has no "func (fd *netFD) Read(p []byte) (n int, err error)"`},
		"a text is there twice":           {changed(t, fake(t), "src/net/file_posix.go", "return &TCPListener{fd: fd}, nil", "if true { return &TCPListener{fd: fd}, nil }; return &TCPListener{fd: fd}, nil"), cache, `has "return &TCPListener{fd: fd}, nil" 2 times`},
		"unix has another function":       {changed(t, fake(t), vendored+"/unix.go", "func errnoErr(", "func errnoError("), cache, `has no "func errnoErr("`},
		"unix lacks a name":               {changed(t, fake(t), vendored+"/unix.go", "func TimerfdCreate(", "func TimerfdMake("), cache, "has no TimerfdCreate, which internal/ticker/"},
		"unix is no Go":                   {changed(t, fake(t), vendored+"/unix.go", "func TimerfdCreate(", "func TimerfdCreate["), cache, "golang.org/x/sys/unix of "},
		"no unix":                         {without(vendored), cache, " has no " + vendored + ": install the package with Go's sources, or Go from https://go.dev/dl"},
		"no sources":                      {without("src"), cache, " has no src/net: install"},
		"the cache is a file":             {fake(t), file, "creating the patched"},
		"the cache cannot be in PATH":     {fake(t), filepath.Join(t.TempDir(), "a"+string(os.PathListSeparator)+"b"), "set SDP_GOCACHE to another directory"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := GOROOT(t.Context(), c.tc, Options{Cache: c.cache})
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "\n")
			entries, err := os.ReadDir(cache)
			require.NoError(t, err)
			require.Len(t, entries, 1, "something was left behind")
		})
	}
}

func TestStaleCopiesAreRemoved(t *testing.T) {
	tc, o := fake(t), Options{Cache: t.TempDir()}
	put := func(name string, age time.Duration) {
		dir := filepath.Join(o.Cache, name)
		require.NoError(t, os.Mkdir(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, usedFile), nil, 0o644))
		then := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(filepath.Join(dir, usedFile), then, then))
		require.NoError(t, os.Chtimes(dir, then, then))
	}
	put(release(tc.GOVERSION)+"-old", 2*replacedTime)
	put(release(tc.GOVERSION)+"-recent", time.Minute)
	put(release(tc.GOVERSION)+"-verbs-old", 2*replacedTime)
	put(release(tc.GOVERSION)+"-kept", 2*replacedTime)
	Keep(filepath.Join(o.Cache, release(tc.GOVERSION)+"-kept"))
	put(release(tc.GOVERSION)+"-forgotten", 2*staleTime)
	Keep(filepath.Join(o.Cache, release(tc.GOVERSION)+"-forgotten"))
	put("go1.25.0-old", 2*staleTime)
	put("go1.25.0-recent", 2*replacedTime)
	put(tempPrefix+"interrupted", 2*brokenAge)
	put(tempPrefix+"inprogress", time.Minute)
	require.NoError(t, os.Mkdir(filepath.Join(o.Cache, "other"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(o.Cache, "no-gosdp"), 0o755))
	goroot, err := GOROOT(t.Context(), tc, o)
	require.NoError(t, err)
	names := func() (all []string) {
		entries, err := os.ReadDir(o.Cache)
		require.NoError(t, err)
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}
	left := []string{filepath.Base(goroot), release(tc.GOVERSION) + "-recent", release(tc.GOVERSION) + "-verbs-old", release(tc.GOVERSION) + "-kept", "go1.25.0-recent", tempPrefix + "inprogress", "other", "no-gosdp"}
	require.ElementsMatch(t, left, names())

	o.Verbs = true
	goroot, err = GOROOT(t.Context(), tc, o)
	require.NoError(t, err)
	left[2] = filepath.Base(goroot)
	require.Equal(t, release(tc.GOVERSION)+"-verbs", replaceable(left[2]))
	require.ElementsMatch(t, left, names())
}

// TestRelativeCache has the go command find it from another directory.
func TestRelativeCache(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	goroot, err := GOROOT(t.Context(), fake(t), Options{Cache: "cache"})
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "cache"), filepath.Dir(goroot))
}

func TestLinkCopiesWhereItCannotLink(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	require.NoError(t, os.WriteFile(filepath.Join(from, "a.go"), []byte("package a\n"), 0o444))
	require.NoError(t, copyFile(to, filepath.Join(from, "a.go")))
	text, err := os.ReadFile(to)
	require.NoError(t, err)
	require.Equal(t, "package a\n", string(text))
}

// What is not to be in every program is not imported by the library, but for what it is in.
func TestLibraryIsComplete(t *testing.T) {
	tc, goroot := here(t), t.TempDir()
	src, unix := filepath.Join(goroot, "src"), filepath.Join(goroot, vendored)
	require.NoError(t, os.MkdirAll(filepath.Dir(unix), 0o755))
	require.NoError(t, os.Symlink(filepath.Join(tc.GOROOT, vendored), unix))
	require.NoError(t, writeLibrary(goroot, tc.GOVERSION, []string{"sdp", "rdma/verbs"}))
	err := filepath.WalkDir(filepath.Join(src, inside), func(file string, e os.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".go" {
			return err
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		_, imports, err := rewriteImports(file, text)
		require.NoError(t, err)
		for _, p := range imports {
			ours, ok := strings.CutPrefix(p, inside)
			if ok && ours != "net" {
				require.DirExists(t, filepath.Join(src, inside, ours), "%s imports %s", file, p)
				continue
			}
			require.NotContains(t, p, ".", "%s is no package of the standard library", p)
			require.NotContains(t, []string{"net", "encoding/json", "log/slog"}, p, "in %s", file)
		}
		return nil
	})
	require.NoError(t, err)
}

// The small implementations in place of the standard library's compute the same.
func TestLightPackages(t *testing.T) {
	dir := t.TempDir()
	for _, pkg := range []string{"sha256", "hmac"} {
		require.NoError(t, writeDir(filepath.Join(dir, pkg), std, "_std/"+pkg))
	}
	hmacFile := filepath.Join(dir, "hmac", "hmac.go")
	text, err := os.ReadFile(hmacFile)
	require.NoError(t, err)
	text = []byte(strings.Replace(string(text), inside, "light/", 1))
	require.NoError(t, os.WriteFile(hmacFile, text, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module light\n\ngo 1.25\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(`package main

import (
	"fmt"
	"light/hmac"
	"light/sha256"
)

func main() {
	b := make([]byte, 300)
	for i := range b {
		b[i] = byte(7 * i)
		h := hmac.New(sha256.New, b[:i/2])
		h.Write(b[:i])
		fmt.Printf("%x %x\n", sha256.Sum256(b[:i]), h.Sum(nil))
	}
}
`), 0o644))
	cmd := exec.Command("go", "run", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	b := make([]byte, 300)
	var want strings.Builder
	for i := range b {
		b[i] = byte(7 * i)
		h := hmac.New(sha256.New, b[:i/2])
		h.Write(b[:i])
		sum := sha256.Sum256(b[:i])
		want.WriteString(hexOf(sum[:]) + " " + hexOf(h.Sum(nil)) + "\n")
	}
	require.Equal(t, want.String(), string(out))
}

func hexOf(b []byte) string { return hex.EncodeToString(b) }
