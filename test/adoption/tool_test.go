package adoption

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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

// report is what programs say of their connections in the file that SDP_REPORT names.
type report string

func newReport(t *testing.T) report { return report(filepath.Join(t.TempDir(), "report")) }

func (r report) env() string { return "SDP_REPORT=" + string(r) }

// onlySDP returns a variable with which dials to addresses fail rather than use TCP, however late the
// server accepts. "*:*" are all addresses.
func onlySDP(t *testing.T, addresses string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sdp.conf")
	require.NoError(t, os.WriteFile(file, []byte("use sdp client * "+addresses+"\n"), 0o600))
	return "SDP_CONFIG=" + file
}

// count returns how many connections were made in a role, "dial" or "accept", on a device.
func (r report) count(t *testing.T, role, device string) int {
	t.Helper()
	text, err := os.ReadFile(string(r))
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(t, err)
	return strings.Count(string(text), " "+role+" "+device+" ")
}
