// Package programs runs other programs during a test: servers and clients that were not
// written for SDP, and this project's relay. A test that needs a program that is not
// installed is skipped, and the message names the program.
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
	// startTime and stopTime limit how long a program may take to become ready, and to
	// end. They are long because machines may be busy.
	startTime = 30 * time.Second
	stopTime  = 10 * time.Second
)

// Need returns the path of a program, or skips the test. It also looks where Debian
// installs PostgreSQL's programs, which is not in PATH.
func Need(t testing.TB, name string) string {
	t.Helper()
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); len(found) > 0 {
		return slices.Max(found)
	}
	found, err := exec.LookPath(name)
	if err != nil {
		t.Skip("missing: ", name)
	}
	return found
}

// Run runs a program until it exits and returns its output. The test fails if the
// program fails.
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

// A Process is a program that runs during the test.
type Process struct {
	// Ready is the line of output that said that the program is ready.
	Ready string

	cmd    *exec.Cmd
	output output
	ended  chan struct{} // closed after cmd.Wait has returned
}

// Start starts a program and returns when the program has written a line that contains
// ready. If it does not, the error contains what it wrote. Stop, or the end of the test,
// ends the program.
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
		cmd.Wait() // the result is in cmd.ProcessState
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
		return nil, fmt.Errorf("%s: start timed out: %s", cmd.Path, &p.output)
	}
}

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Wait waits until the process, which was told to end, has ended, and returns its state.
// It kills a process that does not end in time.
func (p *Process) Wait() *os.ProcessState {
	late := time.AfterFunc(stopTime, func() { p.cmd.Process.Kill() })
	defer late.Stop()
	<-p.ended
	return p.cmd.ProcessState
}

// Stop interrupts the process and waits until it has ended.
func (p *Process) Stop() *os.ProcessState {
	if p.Signal(os.Interrupt) != nil { // already ended, or not supported by the system
		p.cmd.Process.Kill()
	}
	return p.Wait()
}

// output keeps what a process writes, and finds the first line that contains wanted.
type output struct {
	wanted string
	found  chan string // receives the line, once

	mu      sync.Mutex
	text    bytes.Buffer
	scanned int // bytes of text searched so far, in whole lines
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
