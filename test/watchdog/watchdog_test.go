package watchdog_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/watchdog"
)

// TestHang: a target that hangs ends its process while it is fuzzed, and sooner than when a test
// tries an input.
func TestHang(t *testing.T) {
	const hangs = "GOSDP_WATCHDOG_HANGS"
	if os.Getenv(hangs) != "" {
		defer watchdog.Start()()
		select {}
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHang$", "-test.fuzz=^Fuzz$", "-test.fuzzcachedir="+t.TempDir(), "-test.timeout=40s")
	cmd.Env = append(cmd.Environ(), hangs+"=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "panic: the fuzzer's target does not return")
	assert.Contains(t, string(out), "watchdog_test.TestHang", "it says where")
}

func TestStop(t *testing.T) {
	assert.True(t, watchdog.Start()())
}

// TestScript: where a fuzzer without a watchdog hangs, go test passes and fuzz.sh fails.
func TestScript(t *testing.T) {
	if testing.Short() {
		t.Skip("missing: time, because -short is set")
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("missing: sh")
	}
	script, err := filepath.Abs(filepath.Join("..", "fuzz.sh"))
	require.NoError(t, err)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/hangs\n\ngo 1.25.0\n",
		"hangs_test.go": `package hangs

import "testing"

func FuzzFine(f *testing.F) { f.Fuzz(func(*testing.T, []byte) {}) }

func FuzzHangs(f *testing.F) {
	n := 0
	f.Fuzz(func(*testing.T, []byte) {
		if n++; n == 100 {
			select {}
		}
	})
}

func FuzzSeedHangs(f *testing.F) {
	f.Add([]byte(nil))
	f.Fuzz(func(*testing.T, []byte) { select {} })
}
`} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for name, want := range map[string]string{
		"FuzzFine": ". FuzzFine: elapsed: ", "FuzzHangs": ". FuzzHangs hangs, or does not run",
		"FuzzSeedHangs": ". FuzzSeedHangs hangs, or does not run", "FuzzOther": ". FuzzOther hangs, or does not run",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), sh, script, "7s", ".", name)
			cmd.Dir, cmd.Env = dir, append(cmd.Environ(), "GOWORK=off")
			out, err := cmd.CombinedOutput()
			assert.Contains(t, string(out), want)
			assert.Equal(t, name == "FuzzFine", err == nil, "%v\n%s", err, out)
		})
	}
}
