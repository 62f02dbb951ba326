package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCompletion has bash complete commands and flags.
func TestCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil || runtime.GOOS == "windows" {
		t.Skip("missing: bash")
	}
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	script := "#!/bin/sh\nGORACE=atexit_sleep_ms=0 GOSDP_TEST_TOOL=1m exec " + self + " -test.run='^TestAsTool$' -- \"$@\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sdp"), []byte(script), 0o755))
	complete := func(words ...string) []string {
		t.Helper()
		cmd := exec.Command(bash, "-c", bashCompletion+`
COMP_WORDS=(sdp "$@"); COMP_CWORD=$#; _sdp; printf '%s\n' "${COMPREPLY[@]}"`, "bash")
		cmd.Args = append(cmd.Args, words...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.Fields(string(out))
	}
	all := complete("")
	for _, c := range commands() {
		require.Contains(t, all, c.name)
	}
	require.Equal(t, []string{"stat"}, complete("sta"))
	require.Equal(t, []string{"perf"}, complete("help", "per"))
	require.ElementsMatch(t, []string{"-delay", "-dial", "-dial-timeout"}, complete("proxy", "-d"))
}
