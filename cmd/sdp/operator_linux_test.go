package main

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWrongArguments: each ends with 2, and the message names what is wrong.
func TestWrongArguments(t *testing.T) {
	for line, want := range map[string]string{
		"stat -interval -1s":             "-interval -1s",
		"stat -interval 5":               "-interval",
		"top -n -1":                      "-n -1",
		"check nohost":                   `"nohost": want host:port`,
		"check :5432":                    `":5432": want host:port`,
		"check host:99999":               `unknown port "99999"`,
		"check -network udp host:1":      "-network udp",
		"check -timeout 0 host:1":        "-timeout 0s",
		"ping -interval -1s localhost":   "-interval -1s",
		"ping -interval 99999h a":        "-interval 99999h",
		"ping -n 0 localhost":            "-n 0",
		"ping localhost:x":               `unknown port "x"`,
		"ping -ways shm,smoke localhost": `"smoke"`,
		"perf -block -1 localhost":       "-block -1",
		"perf -size 0 localhost":         "-size 0",
		"perf -listen :1 localhost":      "-listen",
		"perf -time 2h localhost":        "-time 2h",
		"perf -s -json":                  "-s ",
		"dump -for -1s 1":                "-for -1s",
		"dump -size 1X 1":                "size=1X",
		"dump -size 2147483648G 1":       "want at most",
		"dump 0":                         `"0"`,
		"proxy -limit -1 -listen tcp://:1 -dial tcp://a:1":         "-limit -1",
		"proxy -grace -1s -listen tcp://:1 -dial tcp://a:1":        "-grace -1s",
		"proxy -mark 0x100000000 -listen tcp://:1 -dial tcp://a:1": "-mark 0x100000000",
		"completion csh": "bash, fish, zsh",
		"stat -no-such":  "-no-such",
	} {
		args := strings.Fields(line)
		out, errs, code := tool(t, args...)
		assert.Equal(t, 2, code, line)
		assert.Empty(t, out, line)
		assert.True(t, strings.HasPrefix(errs, "sdp "+args[0]+": "), "%s: %s", line, errs)
		assert.Contains(t, errs, want, line)
	}
}

// TestNothingRuns: an operator learns why there is nothing to see.
func TestNothingRuns(t *testing.T) {
	empty, err := os.MkdirTemp("", "sdp")
	require.NoError(t, err)
	defer os.RemoveAll(empty)
	out, errs, code := tool(t, "stat", "-dir", empty)
	require.Zero(t, code)
	require.Equal(t, 1, strings.Count(out, "\n"))
	require.Contains(t, errs, "no program serves its status in "+empty)
	out, errs, code = tool(t, "stat", "-json", "-dir", empty)
	require.Zero(t, code)
	require.JSONEq(t, "[]", out)
	require.Empty(t, errs)

	if dirs, _ := new(source).dirs(); os.Geteuid() == 0 && len(dirs) == 0 {
		_, errs, _ = tool(t, "stat")
		require.Contains(t, errs, "no program serves its status in any user's directory below /run/user or /tmp;")
	}

	file := filepath.Join(empty, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	open := filepath.Join(empty, "open")
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Chmod(open, 0o755))
	for dir, want := range map[string]string{empty + "/none": "no such file", file: "is not a directory", open: "must be 700"} {
		for _, command := range [][]string{{"stat"}, {"top"}, {"dump", "1"}} {
			out, errs, code := tool(t, slices.Insert(command, 1, "-dir", dir)...)
			assert.Equal(t, 1, code, dir)
			assert.Empty(t, out)
			assert.Contains(t, errs, want)
		}
	}
}

// TestNoPermission: another user's programs are not shown, and a port that the user may not have is
// named.
func TestNoPermission(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to be another user")
	}
	dir, p, _ := program(t)
	binary := filepath.Join(t.TempDir(), "tool") // which another user may execute
	for at := filepath.Dir(binary); at != "/tmp" && at != "/"; at = filepath.Dir(at) {
		require.NoError(t, os.Chmod(at, 0o755))
	}
	out, err := exec.Command("cp", os.Args[0], binary).CombinedOutput()
	require.NoError(t, err, "%s", out)
	other := func(args ...string) (string, int) {
		cmd := toolCommand(t, args...)
		cmd.Path, cmd.Dir = binary, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	text, code := other("stat", "-dir", dir)
	require.Equal(t, 1, code, "%s", text)
	require.Contains(t, text, "permission denied")
	require.NotContains(t, text, "127.0.0.1")
	text, code = other("dump", "-dir", dir, "-w", "-", "1")
	require.Equal(t, 1, code, "%s", text)
	require.Contains(t, text, "permission denied")
	text, code = other("dump", "-dir", dir, "-w", "-", strconv.Itoa(p.Process.Pid))
	require.Equal(t, 1, code, "%s", text)
	require.NotContains(t, text, "secret")
}

// TestOutputIsLost: a command whose output cannot be written does not succeed, and one whose reader
// has gone ends.
func TestOutputIsLost(t *testing.T) {
	dir, _, c := program(t)
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	for _, line := range []string{
		"stat -dir " + dir, "stat -json -dir " + dir, "top -n 2 -interval 50ms -dir " + dir, "top -interval 50ms -dir " + dir,
		"check", "check -json", "help stat", "stat -h", "completion bash", "version",
	} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		var errs strings.Builder
		cmd := toolCommand(t, strings.Fields(line)...)
		cmd.Stdout, cmd.Stderr = full, &errs
		require.Error(t, cmd.Run(), line)
		full.Close()
		assert.Equal(t, 1, cmd.ProcessState.ExitCode(), line)
		assert.Contains(t, errs.String(), "no space left on device", line)
	}
	r, w, err := os.Pipe()
	require.NoError(t, err)
	cmd := toolCommand(t, "top", "-interval", "50ms", "-dir", dir) // for ever
	cmd.Stdout = w
	require.NoError(t, cmd.Start())
	w.Close()
	_, err = io.ReadFull(r, make([]byte, 1))
	require.NoError(t, err)
	r.Close()
	require.Error(t, cmd.Wait())
	require.Equal(t, syscall.SIGPIPE, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}

// TestJSONIsValid even if there is nothing to say.
func TestJSONIsValid(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	dir, _, _ := program(t)
	for _, line := range []string{
		"check -json", "check -json " + address, "stat -json -dir " + dir,
		"ping -json -n 1 " + address, "perf -json -time 50ms " + address, "ping -json -v -n 1 -ways tcp " + address,
	} {
		out, _, _ := tool(t, strings.Fields(line)...)
		require.True(t, json.Valid([]byte(out)), "%s: %s", line, out)
		require.NotEqual(t, "null\n", out, line)
	}
}
