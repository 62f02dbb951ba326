package containers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// composition is a directory with the example of containers, in which podman keeps all its files.
type composition struct {
	t       *testing.T
	dir     string
	project string
}

// run runs a program, and returns what it has printed.
func (c *composition) run(program string, args ...string) (string, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.WaitDelay = c.dir, time.Second
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+filepath.Join(c.dir, "containers.conf"),
		"CONTAINERS_STORAGE_CONF="+filepath.Join(c.dir, "storage.conf"))
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// must is run for what must succeed.
func (c *composition) must(program string, args ...string) string {
	c.t.Helper()
	out, err := c.run(program, args...)
	require.NoError(c.t, err, "%s %v: %s", program, args, out)
	return out
}

// compose prepares the composition, and skips the test if no container starts here.
func compose(t *testing.T) *composition {
	t.Helper()
	needsRoot(t, "podman", "podman-compose", "go")
	runtime := "crun"
	if _, err := exec.LookPath(runtime); err != nil {
		runtime = "runc"
	}
	c := &composition{t: t, dir: t.TempDir(), project: fmt.Sprint("gosdp", os.Getpid())}
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600))
	}
	// podman would raise the limits of this process, which may be forbidden.
	write("containers.conf", fmt.Sprintf(`[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = %q
events_logger = "file"
cgroup_manager = "cgroupfs"
`, runtime))
	write("storage.conf", fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n",
		filepath.Join(c.dir, "root"), filepath.Join(c.dir, "run")))
	for _, name := range []string{"compose.yaml", "Containerfile"} {
		text, err := os.ReadFile(filepath.Join("../../examples/containers", name))
		require.NoError(t, err)
		write(name, string(text))
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(c.dir, "containers"), ".")
	build.Dir, build.Env = "../../examples/containers", append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	if text, err := c.run("podman", "build", "-q", "-t", "localhost/containers", "."); err != nil {
		t.Skip("missing: a container runtime that builds images: ", text)
	}
	if text, _ := c.run("podman", "run", "--rm", "--network", "none", "localhost/containers"); !strings.Contains(text, "missing command") {
		t.Skip("missing: a container runtime that starts containers: ", text)
	}
	t.Cleanup(func() {
		c.run("podman-compose", "-p", c.project, "down", "-v", "-t", "0")
		c.run("podman", "network", "rm", "-f", c.project+"_default")
	})
	return c
}

// TestCompose: the example of a server and a client in two containers that podman-compose makes, with the volume that both
// mount, and without it.
func TestCompose(t *testing.T) {
	if testing.Short() {
		t.Skip("missing: time, because -short is set")
	}
	c := compose(t)
	for _, carrier := range []string{"shm", "tcp"} {
		environment := ""
		if carrier == "tcp" {
			environment = "\n    environment: {SDP_SHM_DIR: \"\"}"
		}
		c.must("podman-compose", "-p", c.project, "up", "-d", "server")
		at := c.must("podman", "inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", c.project+"_server_1")
		// The server's name is not known where podman has no plugin for that.
		override := fmt.Sprintf("services:\n  client:\n    extra_hosts: [\"server:%s\"]%s\n", at, environment)
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, "client.yaml"), []byte(override), 0o600))
		c.must("podman-compose", "-p", c.project, "-f", "compose.yaml", "-f", "client.yaml", "up", "-d", "client")
		got := c.must("podman", "logs", "-f", c.project+"_client_1")
		assert.Contains(t, got, "http: 100 requests on 1 connection over "+carrier)
		assert.Contains(t, got, "grpc: 100 calls on 1 connection over "+carrier)
		c.must("podman-compose", "-p", c.project, "down", "-v", "-t", "0")
	}
}
