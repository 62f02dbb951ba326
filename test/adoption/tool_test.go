package adoption

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const variable = "GOSDP_ADOPTION"

// want skips the test unless a part of this name is wanted.
func want(t *testing.T, part string) {
	t.Helper()
	chosen := os.Getenv(variable)
	if chosen != "all" && chosen != part {
		t.Skipf("missing: %s=%s, or all", variable, part)
	}
	if runtime.GOOS != "linux" {
		t.Skip("missing: Linux, where programs have SDP")
	}
}

var tool struct {
	sync.Once
	path string
	err  error
}

// TestMain removes the tool.
func TestMain(m *testing.M) {
	status := m.Run()
	if tool.path != "" {
		os.RemoveAll(filepath.Dir(tool.path))
	}
	os.Exit(status)
}

// sdp returns the path of the tool, built from this tree.
func sdp(t *testing.T) string {
	t.Helper()
	tool.Do(func() {
		dir, err := os.MkdirTemp("", "sdp")
		if err != nil {
			tool.err = err
			return
		}
		tool.path = filepath.Join(dir, "sdp")
		cmd := exec.Command("go", "build", "-o", tool.path, "../../cmd/sdp")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if tool.err = cmd.Run(); tool.err != nil {
			os.Stderr.Write(out.Bytes())
		}
	})
	require.NoError(t, tool.err)
	return tool.path
}

// env returns the environment of a go command outside this module, with these variables.
func env(more ...string) []string {
	var e []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "SDP_") || name == "GOFLAGS" || name == "GOWORK" || name == "GOROOT" {
			continue
		}
		e = append(e, v)
	}
	return append(e, more...)
}

// run runs a command in dir and returns what it prints. It fails the test if the command
// fails.
func run(t *testing.T, dir string, environ []string, name string, args ...string) string {
	t.Helper()
	out, err := try(t, dir, environ, name, args...)
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	return out
}

// try is run for a command that may fail.
func try(t *testing.T, dir string, environ []string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, environ
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// module writes files to a new directory, with a go.mod unless there is one.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if files["go.mod"] == "" && files["go.work"] == "" {
		files["go.mod"] = "module example.com/program\n\ngo 1.25\n"
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return dir
}

// atOnce makes connections move at their first exchange, also within one process.
const atOnce = "SDP_MOVE=at-once"

// A way is one in which a program is built and run.
type way struct {
	name   string
	flags  []string // of sdp go
	env    []string
	device string // that the connections of a program use, of which both ends are in it
}

var (
	asTCP    = way{name: "tcp", env: []string{"SDP_DEVICES=tcp"}, device: "tcp"}
	asIs     = way{name: "default", device: "tcp"} // within one process
	moving   = way{name: "at-once", env: []string{atOnce}, device: "shm"}
	restless = way{name: "at-random", env: []string{"SDP_MOVE=at-random"}, device: "shm"}
	iwarp    = way{name: "iwarp", flags: []string{"-iwarp"}, env: []string{"SDP_DEVICES=iwarp", "SDP_PEERS=127.0.0.0/8,::1"}, device: "iwarp"}
)

// buildFor builds the program in a directory for these ways.
func buildFor(t *testing.T, dir string, ways ...way) {
	t.Helper()
	for _, w := range ways {
		run(t, dir, env(), sdp(t), append(w.command("build"), "-o", w.program(), ".")...)
	}
}

// command returns a command of sdp go.
func (w *way) command(name string) []string { return append(append([]string{"go"}, w.flags...), name) }

// program returns the file that buildFor makes.
func (w *way) program() string { return "./program" + strings.Join(w.flags, "") }

// run runs the program that buildFor has made.
func (w *way) run(t *testing.T, dir string, connections report, args ...string) string {
	t.Helper()
	return run(t, dir, env(append(slices.Clone(w.env), connections.env())...), w.program(), args...)
}

// report is what programs say of their connections in the file that SDP_REPORT names.
type report string

func newReport(t *testing.T) report { return report(filepath.Join(t.TempDir(), "report")) }

func (r report) env() string { return "SDP_REPORT=" + string(r) }

// count returns how many connections were made in a role, "dial", "accept" or "file", on a device. Those that
// have moved are counted for "tcp" and for "shm".
func (r report) count(t *testing.T, role, device string) int {
	t.Helper()
	text, err := os.ReadFile(string(r))
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(t, err)
	return strings.Count(string(text), " "+role+" "+device+" ")
}
