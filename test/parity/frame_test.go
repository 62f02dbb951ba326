package parity

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// script uses connections and notes what it observes. It runs in its own process for each
// stack, so it may count what the process holds, and need not clean up.
type script struct {
	name   string
	stacks []string // that it applies to; nil means all
	run    func(*run)
}

// scripts returns all scripts.
func scripts() []script {
	return slices.Concat(
		dialScripts, closeScripts, lingerScripts, halfScripts, exitScripts, readScripts, deadlineScripts,
		listenScripts, restartScripts, slowScripts, linuxScripts(),
	)
}

func TestScripts(t *testing.T) {
	names := map[string]bool{}
	for _, s := range scripts() {
		require.False(t, names[s.name], "two scripts are named %q", s.name)
		names[s.name] = true
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.compare(t)
		})
	}
}

// compare runs the script over every stack and compares the observations with package net's.
func (s *script) compare(t *testing.T) {
	chosen := slices.DeleteFunc(stacks(), func(k stack) bool {
		return s.stacks != nil && !slices.Contains(s.stacks, k.name)
	})
	require.Equal(t, "net", chosen[0].name, "package net is needed for comparison")
	results := make([]result, len(chosen))
	var running sync.WaitGroup
	for i, k := range chosen {
		running.Go(func() { results[i] = s.start(k) })
	}
	running.Wait()
	for i, k := range chosen {
		t.Run(k.name, func(t *testing.T) {
			r := &results[i]
			t.Log(r)
			require.NoError(t, r.err)
			if i == 0 {
				for _, l := range unmet(r.lines) {
					t.Errorf("package net itself does not meet a requirement: %s", l)
				}
				return
			}
			for _, d := range differences(s.name, k.name, results[0].lines, r.lines, known) {
				t.Error(d)
			}
		})
	}
}

// result is what the process of a script printed, and how it ended.
type result struct {
	lines []line
	other string // its log
	took  time.Duration
	err   error
}

func (r *result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v\n", r.took.Round(time.Millisecond))
	for _, l := range r.lines {
		fmt.Fprintln(&b, l)
	}
	return b.String() + r.other
}

// start runs the script over one stack and waits until it has ended.
func (s *script) start(k stack) (r result) {
	const limit = time.Minute
	cmd := command(fmt.Sprintf("script %s %s", k.name, strings.ReplaceAll(s.name, " ", "_")))
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%t", shortVariable, testing.Short()))
	var out, logs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &logs
	cmd.WaitDelay = 5 * time.Second // processes that it started may keep the pipes open a little longer
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return result{err: err}
	}
	defer stdin.Close()
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return result{err: err}
	}
	kill := time.AfterFunc(limit, func() { cmd.Process.Kill() })
	err = cmd.Wait()
	if !kill.Stop() {
		err = fmt.Errorf("it did not end within %v: %w", limit, err)
	}
	r = result{lines: parseLines(out.String()), other: logs.String(), took: time.Since(begin), err: err}
	if err != nil {
		r.err = fmt.Errorf("the script failed: %w", err)
	}
	return r
}

// shortVariable tells the process of a script whether the tests are short.
const shortVariable = "PARITY_SHORT"

// scriptMain is the main function of a script's process.
func scriptMain(arguments []string) {
	endWithStdin()
	for _, s := range scripts() {
		if strings.ReplaceAll(s.name, " ", "_") == arguments[1] {
			s.run(&run{
				stack: stackNamed(arguments[0]),
				short: os.Getenv(shortVariable) == "true",
			})
			return
		}
	}
	panic("no such script")
}

// run is one execution of a script. A script panics if it cannot continue.
type run struct {
	stack
	short bool
}

// note prints an observation, which must be the same in every execution. Each has its own
// name.
func (r *run) note(what, saw string) { printLine(line{what: what, saw: saw}) }

// must prints a requirement and whether it is met. Package net has to meet it too.
func (r *run) must(what string, met bool) {
	saw := "no"
	if met {
		saw = "yes"
	}
	printLine(line{what, saw, true})
}

// log prints information that is not compared.
func (r *run) log(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
}

// check ends the script if a call failed whose result the script does not observe.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// command returns a command that runs this binary in a role.
func command(role string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	// By default the race detector sleeps for a second when a process exits.
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// endWithStdin makes this process end when its standard input does, which happens when its
// parent ends for any reason.
func endWithStdin() {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
}

// wait gives a stack time to give up, which it must not. Short tests omit it.
func (r *run) wait(d time.Duration) {
	if !r.short {
		time.Sleep(d)
	}
}

// eventually polls condition until it is true, or patience is at its end.
func eventually(condition func() bool) bool {
	for until := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			return false
		}
	}
	return true
}

var errHangs = errors.New("has not returned")
