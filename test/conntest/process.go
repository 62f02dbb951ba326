package conntest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gosdp/gosdp/internal/budget"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// RoleVariable has the role of a second process, which is the test binary again.
const RoleVariable = "GOSDP_TEST_ROLE"

// Main is the main function of a test binary that may be a second process, for which it calls peer. It fails if
// goroutines are left, or bytes of the budget.
func Main(m *testing.M, peer func(role string)) {
	if role := os.Getenv(RoleVariable); role != "" {
		go func() { // end with the parent, however it ends
			io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
		peer(role)
		return
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if code == 0 && !Given() {
			fmt.Println("bytes are still promised that no connection has:", budget.Process.Used())
			code = 1
		}
		os.Exit(code)
	}))
}

// Given waits until everything that connections had promised is Given back. What tests
// have dropped the collector closes.
func Given() bool {
	for range 3000 {
		if budget.Process.Used() == 0 {
			return true
		}
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// Process is the second process.
type Process struct {
	Address string // what its first line said
	Cmd     *exec.Cmd
	stdout  *bufio.Reader
}

// StartPeer starts a second process in a role, which ends with the test. The role begins with a line that tells
// its address.
func StartPeer(t *testing.T, role string) *Process {
	t.Helper()
	p := &Process{Cmd: Command(role)}
	_, err := p.Cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.Cmd.StdoutPipe()
	require.NoError(t, err)
	p.stdout = bufio.NewReader(out)
	require.NoError(t, p.Cmd.Start())
	t.Cleanup(p.Kill)
	p.Address = p.Report(t)
	return p
}

// Command returns the command of a second process in a role.
func Command(role string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	// With the race detector a process would sleep for a second before it exits.
	cmd.Env = append(os.Environ(), RoleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// Kill ends the process as an operator would a stuck one, and waits for its end.
func (p *Process) Kill() {
	p.Cmd.Process.Kill()
	p.Cmd.Wait()
}

// Report returns the next line that the process has printed.
func (p *Process) Report(t *testing.T) string {
	t.Helper()
	line, err := p.stdout.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}
