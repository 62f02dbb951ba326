package suites

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	firstTimeout = 15 * time.Minute // for a package over TCP
	leastTimeout = 30 * time.Second // minimum for a package on a device
	rounds       = 8                // maximum number of repetitions of failed tests
	cleanup      = 20 * time.Second // time for swap to end before this test's deadline
)

// build compiles swap and returns its path.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "swap.exe")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "..").CombinedOutput()
	require.NoError(t, err, string(out))
	return program
}

// runner runs a suite.
type runner struct {
	suite suite
	swap  string // path of the tool
	dir   string // a copy of the module; all runs share its build cache entries
}

func newRunner(t *testing.T, swap string, s suite) *runner {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", s.module)
	cmd.Dir = t.TempDir()
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	var got struct{ Dir, Error string }
	require.NoError(t, json.Unmarshal(out, &got), "%s", out)
	require.Empty(t, got.Error)
	require.NoError(t, err)
	r := &runner{suite: s, swap: swap, dir: filepath.Join(t.TempDir(), "module")}
	require.NoError(t, os.CopyFS(r.dir, os.DirFS(got.Dir)))
	return r
}

// report returns the file to which the programs report their connections over a stack.
func (r *runner) report(on stack) string { return filepath.Join(r.dir, "..", "report."+on.name) }

// connections returns how many connections the programs dialled over the device of a stack.
func (r *runner) connections(t *testing.T, on stack) (n int) {
	t.Helper()
	text, err := os.ReadFile(r.report(on))
	require.NoError(t, err, "no connection was reported")
	for line := range strings.Lines(string(text)) {
		if strings.HasSuffix(line, " dial "+on.name+"\n") {
			n++
		}
	}
	return n
}

// test runs go test on packages, each with the given timeout.
func (r *runner) test(t *testing.T, on stack, timeout time.Duration, args ...string) *results {
	t.Helper()
	ctx := t.Context()
	if end, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-cleanup))
		defer cancel()
	}
	args = append([]string{"-C", r.dir, "-devices", on.devices, "go", "test", "-json", "-p", "1", "-count=1", "-timeout", timeout.String()}, args...)
	cmd := exec.CommandContext(ctx, r.swap, args...)
	cmd.Env = append(cmd.Environ(), "SDP_SWAP_REPORT="+r.report(on))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // lets swap remove its files
	cmd.WaitDelay = cleanup
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run() // an error if a test fails
	got := parse(&stdout)
	require.NoError(t, ctx.Err(), "go test -timeout is too short for the suite")
	require.NotEmpty(t, got.tests, "no test ran: %v\n%s%s", err, &got.other, &stderr)
	return got
}

// baseline runs the suite over TCP.
func (r *runner) baseline(t *testing.T) *results {
	t.Helper()
	start := time.Now()
	base := r.test(t, plain, firstTimeout, r.suite.packages...)
	require.Len(t, base.seconds, len(r.suite.packages), "%s", &base.other)
	require.NotZero(t, base.count(passed))
	r.log(t, plain, base, time.Since(start))
	return base
}

// runOn runs the suite on a device. Because a busy machine makes some tests fail, a failed test
// that is not known is run once more without the others. A test that hangs ends its package.
// The tests that did not run because of it are run without it, until too many have hung.
func (r *runner) runOn(t *testing.T, on stack, base *results, known []difference) *results {
	t.Helper()
	var longest float64
	for _, s := range base.seconds {
		longest = max(longest, s)
	}
	got := r.test(t, on, leastTimeout+seconds(3*longest), r.suite.packages...)
	tried := make(map[id]int) // number of failures of a test
	for _, d := range known {
		tried[d.id()] = 1
	}
	for round, progress := 0, true; progress && round < rounds; round++ {
		progress = false
		for pkg, again := range got.unsettled(base, tried) {
			var sum float64
			for _, i := range again {
				sum += base.tests[i].seconds
			}
			later := r.test(t, on, leastTimeout+seconds(3*sum), "-run", pattern(again), pkg)
			for _, i := range again {
				before, now := got.outcome(i), later.outcome(i)
				if now == absent {
					continue
				}
				progress = true
				got.merge(later, i)
				if before != absent && now == passed {
					t.Logf("%s %s over %s, and %s in a second run", i, before, on.name, now)
				}
			}
		}
	}
	return got
}

// pattern returns an argument for -run that matches tests of one package.
func pattern(tests []id) string {
	var alternatives []string
	for _, i := range tests {
		var levels []string
		for level := range strings.SplitSeq(i.Test, "/") {
			levels = append(levels, "^"+regexp.QuoteMeta(level)+"$")
		}
		alternatives = append(alternatives, strings.Join(levels, "/"))
	}
	return strings.Join(alternatives, "|")
}

// log logs a line about a run.
func (r *runner) log(t *testing.T, on stack, got *results, took time.Duration) {
	t.Helper()
	line := fmt.Sprintf("%s over %s: %d pass, %d fail, %d hang, %d skip, %.0f s",
		r.suite.name, on.name, got.count(passed), got.count(failed), got.count(hung), got.count(skipped), took.Seconds())
	if on != plain {
		line += fmt.Sprintf(", %d connections over %s", r.connections(t, on), on.name)
	}
	t.Log(line)
}

func seconds(s float64) time.Duration { return time.Duration(math.Ceil(s)) * time.Second }
