package main

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/status/collect"
)

// patience is how long a test waits for what comes at once, or is broken.
const patience = time.Minute

// TestAsTool is the tool itself, in processes that tests start; see toolCommand.
func TestAsTool(t *testing.T) {
	if os.Getenv("GOSDP_TEST_TOOL") == "" {
		return
	}
	collect.Patience, _ = time.ParseDuration(os.Getenv("GOSDP_TEST_TOOL"))
	if d, err := time.ParseDuration(os.Getenv("GOSDP_TEST_RATE")); err == nil {
		rateTime = d
	}
	args := os.Args[slices.Index(os.Args, "--")+1:]
	os.Exit(run(args, stdout, os.Stderr))
}

// toolCommand returns a command that runs the tool in a process of its own, which waits for other programs
// until they answer.
func toolCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"-test.run=^TestAsTool$", "--"}, args...)...)
	cmd.Env = append(os.Environ(), "GOSDP_TEST_TOOL="+patience.String(), "GORACE=atexit_sleep_ms=0")
	return cmd
}

// A process is a tool that runs beside the test. It is killed at the test's end.
type process struct {
	*exec.Cmd
	mu    sync.Mutex
	lines []string // of standard output and standard error
	read  chan struct{}
}

func startTool(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = w, w
	p := &process{Cmd: cmd, read: make(chan struct{})}
	require.NoError(t, cmd.Start())
	w.Close()
	go func() {
		defer close(p.read)
		defer r.Close()
		for lines := bufio.NewScanner(r); lines.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, lines.Text())
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		<-p.read
		if t.Failed() {
			t.Logf("%v wrote:\n%s", cmd.Args, strings.Join(p.lines, "\n"))
		}
	})
	return p
}

// line waits for a line that contains text and returns it.
func (p *process) line(t *testing.T, text string) (line string) {
	t.Helper()
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		i := slices.IndexFunc(p.lines, func(l string) bool { return strings.Contains(l, text) })
		if i >= 0 {
			line = p.lines[i]
		}
		return i >= 0
	}, patience, time.Millisecond, "no line contains %q", text)
	return line
}

// status waits for the end and returns the exit status.
func (p *process) status(t *testing.T) int {
	t.Helper()
	late := time.AfterFunc(patience, func() { p.Process.Kill() })
	defer late.Stop()
	p.Wait()
	return p.ProcessState.ExitCode()
}
