// Package programs runs other programs beside a test: servers and clients that
// were not written for SDP, and this project's own relay. A test that needs a
// program which is not installed is skipped, and says which one.
package programs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// startTime and stopTime are how long a program may take to become ready, and
	// to end when it is told to. Both are long, for machines that are busy.
	startTime = 30 * time.Second
	stopTime  = 10 * time.Second
)

// Need returns the path of a program, or skips the test. Debian keeps the
// programs of its PostgreSQL outside of PATH.
func Need(t testing.TB, name string) string {
	t.Helper()
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); len(found) > 0 {
		return slices.Max(found)
	}
	found, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	return found
}

// Run runs a program to its end, and returns its output. It fails the test if
// the program does.
func Run(t testing.TB, limit time.Duration, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, Need(t, name), args...)
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	require.NoError(t, err, "%s: %s%s", name, stdout, &stderr)
	return string(stdout)
}

// A Process is a program that runs beside the test.
type Process struct {
	// Ready is the line of output with which it said that it was.
	Ready string

	cmd    *exec.Cmd
	output output
	ended  chan struct{} // closed when it has been waited for
}

// Start starts a program and returns when it has written a line that contains
// ready. An error says what it wrote instead. Stop, or the end of the test, ends
// it.
func Start(t testing.TB, cmd *exec.Cmd, ready string) (*Process, error) {
	p := &Process{
		cmd:    cmd,
		output: output{wanted: ready, found: make(chan string, 1)},
		ended:  make(chan struct{}),
	}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	cmd.WaitDelay = stopTime
	dieWithTest(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		cmd.Wait() // the state of the process says how it ended
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("%s wrote:\n%s", cmd.Path, &p.output)
		}
	})

	late := time.NewTimer(startTime)
	defer late.Stop()
	select {
	case p.Ready = <-p.output.found:
		return p, nil
	case <-p.ended:
		return nil, fmt.Errorf("%s: %s: %s", cmd.Path, cmd.ProcessState, &p.output)
	case <-late.C:
		p.Stop()
		return nil, fmt.Errorf("%s was not ready in time: %s", cmd.Path, &p.output)
	}
}

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Wait waits for the end of the process, which has been told to end, and returns
// how it did. One that takes no notice is killed.
func (p *Process) Wait() *os.ProcessState {
	late := time.AfterFunc(stopTime, func() { p.cmd.Process.Kill() })
	defer late.Stop()
	<-p.ended
	return p.cmd.ProcessState
}

// Stop interrupts the process and waits for its end.
func (p *Process) Stop() *os.ProcessState {
	if p.Signal(os.Interrupt) != nil { // it has ended, or the system has no such signal
		p.cmd.Process.Kill()
	}
	return p.Wait()
}

// output keeps what a process writes, and finds one line in it.
type output struct {
	wanted string
	found  chan string // has the line, once

	mu      sync.Mutex
	text    bytes.Buffer
	scanned int // bytes of text that were looked at, whole lines
	done    bool
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	for !o.done {
		rest := o.text.Bytes()[o.scanned:]
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			break
		}
		if line := string(rest[:end]); bytes.Contains(rest[:end], []byte(o.wanted)) {
			o.found <- line
			o.done = true
		}
		o.scanned += end + 1
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
