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
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A script does something with connections and notes what it observes. It runs
// in a process of its own for each stack, so it may count what the process holds
// and leave behind what it likes.
type script struct {
	name   string
	stacks []string      // that it makes sense for; nil: all
	waits  bool          // it mostly waits, so others can run beside it
	limit  time.Duration // after which it is killed; 0: a minute
	run    func(*run)
}

// scripts are all scripts.
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
			if s.waits {
				t.Parallel()
			}
			s.compare(t)
		})
	}
}

// compare runs the script over every stack and compares the observations with
// package net's.
func (s *script) compare(t *testing.T) {
	over := slices.DeleteFunc(stacks(), func(k stack) bool {
		return s.stacks != nil && !slices.Contains(s.stacks, k.name)
	})
	require.Equal(t, "net", over[0].name, "there must be something to compare with")
	results := make([]result, len(over))
	var running sync.WaitGroup
	for i, k := range over {
		running.Go(func() { results[i] = s.start(k) })
		if !s.waits {
			running.Wait()
		}
	}
	running.Wait()
	for i, k := range over {
		t.Run(k.name, func(t *testing.T) {
			r := &results[i]
			t.Log(r)
			require.NoError(t, r.err)
			if i == 0 {
				for _, l := range unmet(r.lines) {
					t.Errorf("package net itself does not do what must be: %s", l)
				}
				return
			}
			for _, d := range differences(s.name, k.name, results[0].lines, r.lines, known) {
				t.Error(d)
			}
		})
	}
}

// A result is what the process of a script printed, and how it ended.
type result struct {
	lines []line
	other string // what it printed besides: its logs
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

// start runs the script over one stack and waits for its end.
func (s *script) start(k stack) (r result) {
	limit := s.limit
	if limit == 0 {
		limit = time.Minute
	}
	cmd := command(fmt.Sprintf("script %s %s", k.name, strings.ReplaceAll(s.name, " ", "_")))
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%t", shortVariable, testing.Short()))
	var out, logs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &logs
	cmd.WaitDelay = 5 * time.Second // its own processes may hold the pipes a little longer
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
		err = fmt.Errorf("it does not end within %v: %w", limit, err)
	}
	r = result{lines: parseLines(out.String()), other: logs.String(), took: time.Since(begin), err: err}
	if err != nil {
		r.err = fmt.Errorf("the script breaks off: %w", err)
	}
	return r
}

// shortVariable tells the process of a script whether the test is a short one.
const shortVariable = "PARITY_SHORT"

// scriptMain is the main function of a script's process.
func scriptMain(arguments []string) {
	endWithStdin()
	for _, s := range scripts() {
		if strings.ReplaceAll(s.name, " ", "_") == arguments[1] {
			s.run(&run{
				stack: stackNamed(arguments[0]),
				short: os.Getenv(shortVariable) == "true",
				long:  os.Getenv("PARITY_LONG") != "",
			})
			return
		}
	}
	panic("there is no such script")
}

// A run is one execution of a script. A script that cannot go on panics.
type run struct {
	stack
	short, long bool
	others      atomic.Int64 // connections that do not use the stack although they may
}

// note writes down an observation, which must be the same in every execution.
// Each has a name of its own.
func (r *run) note(what, saw string) { printLine(line{what: what, saw: saw}) }

// must writes down a requirement and whether it is met. Package net has to meet
// it too.
func (r *run) must(what string, met bool) {
	saw := "no"
	if met {
		saw = "yes"
	}
	printLine(line{what, saw, true})
}

// log prints what is not compared.
func (r *run) log(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
}

// check ends the script if something failed that it does not ask about.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// command returns a command that runs this binary in a role.
func command(role string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	// With the race detector a process would sleep for a second before it exits.
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// endWithStdin has this process end when its standard input does: when its parent
// has ended, however it ended.
func endWithStdin() {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
}

// within waits until something is so, for a time at most.
func within(limit time.Duration, so func() bool) bool {
	for until := time.Now().Add(limit); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			return false
		}
	}
	return true
}

var errHangs = errors.New("has not returned")
