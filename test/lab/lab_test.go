package lab_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/test/lab"
)

// TestRunScript runs run.sh as from a shell.
func TestRunScript(t *testing.T) {
	if os.Getenv("GOSDP_LAB") == "" {
		t.Skip("missing: the RDMA lab, GOSDP_LAB is not set; make lab sets it")
	}
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
		return path
	}
	script := write("script", "#!/bin/bash\nuname -s\nsort beside >out/sorted\nexit 7\n")
	out := filepath.Join(dir, "out")
	require.NoError(t, os.Mkdir(out, 0o755))
	cmd := exec.Command("./run.sh", script, write("beside", "b\na\n"))
	cmd.Env = append(os.Environ(), "OUT="+out, "MEMORY=1G", "CPUS=1")
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "%v", err)
	require.Equal(t, 7, exit.ExitCode(), "%s", output)
	require.Contains(t, string(output), "Linux\n")
	sorted, err := os.ReadFile(filepath.Join(out, "sorted"))
	require.NoError(t, err)
	require.Equal(t, "a\nb\n", string(sorted))
}

// testLab tests other features of the lab: programs with shared libraries, and rxe.
func testLab(t *testing.T, m *lab.Machine) {
	t.Run("a program from outside", func(t *testing.T) {
		program, err := exec.LookPath("xz") // uses a library that the machine lacks
		require.NoError(t, err)
		m.Copy(t, program)
		require.Equal(t, "packed", m.Run(t, "echo -n packed | ./xz | ./xz -d"))
	})
	t.Run("status", func(t *testing.T) {
		result := m.Start(t, "echo out; echo err >&2; exit 3").Wait()
		require.Equal(t, lab.Result{Output: "out\nerr\n", Status: 3}, result)
		killed := m.Start(t, "sleep 1000")
		killed.Kill()
		require.Equal(t, -1, killed.Wait().Status)
	})
	t.Run("rxe", func(t *testing.T) {
		m.Run(t, `
			rdma link delete siw0; tc qdisc delete dev eth0 root
			rdma link add rxe0 type rxe netdev eth0
			tc qdisc add dev eth0 root netem loss 0%
			timeout 60 rping -s -a 10.0.2.15 & sleep 0.5
			timeout 60 rping -c -a 10.0.2.15 -V -C 10
			wait`)
	})
}
