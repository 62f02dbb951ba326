package adoption

import (
	"archive/zip"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// echo is a program that connects to itself, and whose package x its modes differ in.
const echo = `package main

import (
	"fmt"
	"io"
	"net"

	"example.com/program/x"
)

func main() { Run() }

func Run() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	x.Must(err)
	go func() {
		c, err := ln.Accept()
		x.Must(err)
		_, err = io.Copy(c, c)
		x.Must(err)
		x.Must(c.Close())
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	x.Must(err)
	for range 100 {
		_, err = c.Write([]byte("again"))
		x.Must(err)
		_, err = io.ReadFull(c, make([]byte, 5))
		x.Must(err)
	}
	_, err = c.Write([]byte("echoed"))
	x.Must(err)
	x.Must(c.(*net.TCPConn).CloseWrite())
	b, err := io.ReadAll(c)
	x.Must(err)
	fmt.Println(string(b))
}
`

const must = `package x

func Must(err error) {
	if err != nil {
		panic(err)
	}
}
`

func echoModule(t *testing.T, more map[string]string) string {
	files := map[string]string{"main.go": echo, "x/x.go": must, "main_test.go": "package main\n\nimport \"testing\"\n\nfunc TestRun(t *testing.T) { Run() }\n"}
	for name, text := range more {
		files[name] = text
	}
	return module(t, files)
}

// The ways in which people build: each makes a program whose connections use SDP.
func TestModes(t *testing.T) {
	want(t, "all")
	for name, m := range map[string]struct {
		files map[string]string
		env   []string
		args  []string // of sdp
		runs  bool     // the command itself runs the program
	}{
		"build":     {args: []string{"build", "-o", "program", "."}},
		"go build":  {args: []string{"go", "build", "-o", "program", "."}},
		"run":       {args: []string{"run", "."}, runs: true},
		"test":      {args: []string{"test", "-count=1", "-v", "."}, runs: true},
		"cover":     {args: []string{"test", "-count=1", "-v", "-cover", "-coverpkg=./...", "."}, runs: true},
		"race":      {args: []string{"build", "-race", "-o", "program", "."}},
		"trimpath":  {args: []string{"build", "-trimpath", "-o", "program", "."}},
		"no cgo":    {env: []string{"CGO_ENABLED=0"}, args: []string{"build", "-o", "program", "."}},
		"tags":      {args: []string{"build", "-tags", "netgo,osusergo", "-ldflags", "-s -w", "-o", "program", "."}},
		"cgo names": {args: []string{"build", "-tags", "netcgo", "-o", "program", "."}},
		"pie":       {args: []string{"build", "-buildmode=pie", "-o", "program", "."}},
		"GOFLAGS":   {env: []string{"GOFLAGS=-trimpath -tags=netgo"}, args: []string{"build", "-o", "program", "."}},
		"vendor":    {files: map[string]string{"vendor/modules.txt": ""}, args: []string{"build", "-mod=vendor", "-o", "program", "."}},
		"overlay":   {files: map[string]string{"overlay.json": `{"Replace": {"y.go": "x/y.txt"}}`, "x/y.txt": "package main\n"}, args: []string{"build", "-overlay", "overlay.json", "-o", "program", "."}},
		"toolexec":  {args: []string{"build", "-toolexec", "env", "-o", "program", "."}},
		"workspace": {files: map[string]string{"go.work": "go 1.25\n\nuse .\n", "go.mod": "module example.com/program\n\ngo 1.25\n"}, args: []string{"build", "-o", "program", "."}},
		"-C":        {args: []string{"build", "-C", ".", "-o", "program", "."}},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "race" || name == "cgo names" {
				if out := run(t, t.TempDir(), env(), "go", "env", "CGO_ENABLED"); strings.TrimSpace(out) != "1" {
					t.Skip("missing: cgo")
				}
			}
			dir, connections := echoModule(t, m.files), newReport(t)
			out := run(t, dir, env(append(m.env, atOnce, connections.env())...), sdp(t), m.args...)
			if !m.runs {
				out = run(t, dir, env(atOnce, connections.env()), filepath.Join(dir, "program"))
				require.Contains(t, run(t, dir, env(), sdp(t), "version", "program"), "program: SDP of gosdp ")
			}
			require.Contains(t, out, "echoed")
			require.Equal(t, 1, connections.count(t, "dial", "shm"))
			require.Equal(t, 1, connections.count(t, "accept", "shm"))
		})
	}
}

// A program built by the go command after that has no SDP: nothing of one build gets into
// the other by way of the build cache.
func TestCachesAreNotMixed(t *testing.T) {
	want(t, "all")
	dir, connections := echoModule(t, nil), newReport(t)
	cache := "GOCACHE=" + t.TempDir()
	run(t, dir, env(cache), sdp(t), "build", "-o", "with", ".")
	run(t, dir, env(cache), "go", "build", "-o", "without", ".")
	run(t, dir, env(cache), sdp(t), "build", "-o", "again", ".")
	out, err := try(t, dir, env(), sdp(t), "version", "with", "without", "again")
	require.Error(t, err)
	require.Regexp(t, `with: SDP of .*\nwithout: not built by sdp go, go.*\nagain: SDP of `, out)
	require.Contains(t, run(t, dir, env(atOnce, connections.env()), filepath.Join(dir, "without")), "echoed")
	require.Zero(t, connections.count(t, "dial", "tcp"))
}

func TestOtherSystems(t *testing.T) {
	want(t, "all")
	dir := echoModule(t, nil)
	for _, goos := range []string{"windows", "darwin", "freebsd"} {
		out := run(t, dir, env("GOOS="+goos, "CGO_ENABLED=0"), sdp(t), "build", "-o", "program", ".")
		require.Equal(t, "sdp: SDP is not supported on "+goos+"; building without it\n", out)
	}
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	run(t, dir, env("GOARCH="+other, "CGO_ENABLED=0"), sdp(t), "build", "-o", "program", ".")
	require.Contains(t, run(t, dir, env(), sdp(t), "version", "program"), "SDP of gosdp")
	out, err := try(t, dir, env("GOARCH=386", "CGO_ENABLED=0"), sdp(t), "build", "-o", "none", ".")
	require.Error(t, err)
	require.Equal(t, "sdp build: linux/386 is not supported, only amd64 and arm64; use go instead of sdp go to build without SDP\n", out)
	require.NoFileExists(t, filepath.Join(dir, "none"))
	out, err = try(t, dir, env("GOARCH=386", "CGO_ENABLED=0"), "sh", "-c", `eval "$("$0" env)" && go build -o none .`, sdp(t))
	require.Error(t, err)
	require.Contains(t, out, "there_is_SDP_only_for_linux_on_amd64_and_arm64")
	out = run(t, dir, env("GOOS=android", "GOARCH=arm64", "CGO_ENABLED=0"), sdp(t), "build", "-o", "program", ".")
	require.Contains(t, out, "SDP is not supported on android")
	out, err = try(t, dir, env(), sdp(t), "version", "program")
	require.Error(t, err)
	require.Contains(t, out, "program: not built by sdp go")
}

func TestEnv(t *testing.T) {
	want(t, "all")
	dir, connections := echoModule(t, nil), newReport(t)
	run(t, dir, env(), "sh", "-c", `eval "$("$0" env)" && ls "$GOROOT/.gosdp-kept" && go build -o program . && "$0" build -o again .`, sdp(t))
	for _, name := range []string{"program", "again"} {
		run(t, dir, env(atOnce, connections.env()), filepath.Join(dir, name))
	}
	require.Equal(t, 2, connections.count(t, "dial", "shm"))
}

func TestRefusals(t *testing.T) {
	want(t, "all")
	dir := echoModule(t, nil)
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	replaced := filepath.Join(strings.TrimSpace(run(t, dir, env(), "go", "env", "GOROOT")), "src", "os", "exec.go")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), []byte(`{"Replace": {"`+replaced+`": "file"}}`), 0o644))
	for name, c := range map[string]struct {
		env  []string
		args []string
		want string
	}{
		"no go command":        {nil, []string{"go"}, "sdp go: missing go command, such as sdp go build\n"},
		"the cache is a file":  {[]string{"SDP_GOCACHE=" + file}, []string{"build", "."}, "sdp build: creating the patched go"},
		"no home":              {[]string{"HOME=", "XDG_CACHE_HOME=", "GOCACHE=" + dir, "GOPATH=" + dir}, []string{"build", "."}, "sdp build: no cache directory for the patched Go"},
		"verbs without cgo":    {[]string{"CGO_ENABLED=0"}, []string{"go", "-verbs", "build", "."}, "sdp go: -verbs needs cgo: set CGO_ENABLED=1\n"},
		"env with verbs":       {[]string{"CGO_ENABLED=0"}, []string{"env", "-verbs=true"}, "sdp env: -verbs needs cgo: set CGO_ENABLED=1\n"},
		"overlay":              {[]string{"GOFLAGS=-overlay=overlay.json"}, []string{"build", "."}, "sdp build: overlay overlay.json replaces " + replaced + ", which sdp does not compile"},
		"no such directory":    {nil, []string{"go", "-C", "nowhere", "build"}, "sdp go: go env: chdir nowhere"},
		"the compiler's error": {nil, []string{"build", "./nowhere"}, "nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := try(t, dir, env(c.env...), sdp(t), c.args...)
			require.Error(t, err)
			require.Contains(t, out, c.want)
			require.LessOrEqual(t, strings.Count(out, "\n"), 2, out)
		})
	}
}

// Commands that build nothing are those of the installation, and need no changed Go.
func TestWithoutBuilding(t *testing.T) {
	want(t, "short")
	dir := echoModule(t, nil)
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	out := run(t, dir, env("SDP_GOCACHE="+file), sdp(t), "go", "-C", "x", "mod", "edit", "-json", "../go.mod")
	require.Contains(t, out, "example.com/program")
	_, err := try(t, dir, env("SDP_GOCACHE="+file), sdp(t), "go", "vet", ".")
	require.Error(t, err)
}

// The tool installs from a module proxy, and a program that requires it by version too.
func TestInstallFromProxy(t *testing.T) {
	want(t, "all")
	proxy := t.TempDir()
	publish(t, proxy, "github.com/gosdp/gosdp", "v0.99.0", "../..")
	publish(t, proxy, "example.com/program", "v1.2.3", echoModule(t, nil))
	cache := strings.TrimSpace(run(t, t.TempDir(), env(), "go", "env", "GOMODCACHE"))
	bin := t.TempDir()
	fromProxy := []string{
		"GOPROXY=file://" + proxy + ",file://" + filepath.Join(cache, "cache", "download"),
		"GOSUMDB=off", "GOFLAGS=-modcacherw", "GOMODCACHE=" + t.TempDir(), "GOBIN=" + bin,
	}
	run(t, t.TempDir(), env(fromProxy...), "go", "install", "github.com/gosdp/gosdp/cmd/sdp@latest")
	installed := filepath.Join(bin, "sdp")
	require.Equal(t, "sdp v0.99.0\n", run(t, bin, env(), installed, "version"))

	connections := newReport(t)
	run(t, t.TempDir(), env(fromProxy...), installed, "install", "example.com/program@latest")
	require.Contains(t, run(t, bin, env(atOnce, connections.env()), filepath.Join(bin, "program")), "echoed")
	require.Equal(t, 1, connections.count(t, "accept", "shm"))
	require.Contains(t, run(t, bin, env(), installed, "version", "program"), "program: SDP of gosdp v0.99.0, go")
}

// publish adds a module to a proxy that is a directory.
func publish(t *testing.T, proxy, path, version, dir string) {
	t.Helper()
	to := filepath.Join(proxy, path, "@v")
	require.NoError(t, os.MkdirAll(to, 0o755))
	goMod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(to, "list"), []byte(version+"\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(to, version+".info"), []byte(`{"Version":"`+version+`"}`), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(to, version+".mod"), goMod, 0o644))
	f, err := os.Create(filepath.Join(to, version+".zip"))
	require.NoError(t, err)
	defer f.Close()
	z := zip.NewWriter(f)
	err = filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, file)
		if e.IsDir() {
			_, nested := os.Stat(filepath.Join(file, "go.mod"))
			if rel != "." && (nested == nil || e.Name() == ".git") {
				return filepath.SkipDir
			}
			return nil
		}
		if !e.Type().IsRegular() || e.Name() == ".git" {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		w, err := z.Create(path + "@" + version + "/" + filepath.ToSlash(rel))
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	})
	require.NoError(t, err)
	require.NoError(t, z.Close())
}
