package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/gosdp/gosdp/test/group"
)

// repeat is the configuration and the state of the program.
type repeat struct {
	times, few  int
	race, short bool
	beside      int
	timeout     time.Duration
	soak        time.Duration
	dir         string
	devices     []string
	root        string // of the module
	subjects    []subject
	out         io.Writer

	mu   sync.Mutex
	log  *record
	left int // runs
}

// run runs all jobs. It returns the first error that prevents it from continuing, or
// errFailures.
func (r *repeat) run(ctx context.Context, only string) (err error) {
	chosen, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	for _, dir := range []*string{&r.dir, &r.root} { // programs run in other directories
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	for _, dir := range []string{"programs", "failures"} {
		if err := os.MkdirAll(filepath.Join(r.dir, dir), 0o755); err != nil {
			return err
		}
	}
	jobs, err := r.jobs(ctx, chosen)
	if err != nil {
		return err
	}
	if r.log, err = openRecord(filepath.Join(r.dir, "runs.jsonl")); err != nil {
		return err
	}
	defer r.log.close()
	for _, parallel := range []bool{true, false} {
		if err := r.all(ctx, r.rounds(jobs, parallel), parallel); err != nil {
			return err
		}
	}
	return r.log.summary(r.out, jobs, ctx.Err() != nil)
}

// rounds returns the remaining runs of parallel jobs, or of the others. The runs of different
// jobs alternate, so that all jobs progress at the same rate.
func (r *repeat) rounds(jobs []*job, parallel bool) (todo []*job) {
	for round := 0; ; round++ {
		remaining := false
		for _, j := range jobs {
			if j.parallel == parallel && round < j.times {
				remaining = true
				if round >= r.log.get(j).runs {
					todo = append(todo, j)
				}
			}
		}
		if !remaining {
			return todo
		}
	}
}

// all executes the runs, several at a time if they are parallel, until ctx is done.
func (r *repeat) all(ctx context.Context, todo []*job, parallel bool) error {
	n := 1
	if parallel {
		n = r.beside
	}
	r.left = len(todo)
	next := make(chan *job)
	errs := make(chan error, n)
	var working sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for range n {
		working.Go(func() {
			for j := range next {
				if err := r.once(ctx, j); err != nil {
					errs <- err
					stop()
					return
				}
			}
		})
	}
	for _, j := range todo {
		select {
		case next <- j:
		case <-ctx.Done():
		}
	}
	close(next)
	working.Wait()
	close(errs)
	return <-errs
}

// once executes one run. An interrupted run is not recorded.
func (r *repeat) once(ctx context.Context, j *job) error {
	if ctx.Err() != nil {
		return nil
	}
	// The test's own timeout prints stacks. This one is for programs that do not react to it.
	limited, cancel := context.WithTimeout(ctx, r.timeout+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(limited, j.argv[0], j.argv[1:]...)
	cmd.Dir = j.directory
	// By default the race detector sleeps for a second when a process exits.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	if j.Device != "" {
		cmd.Env = append(cmd.Env, "SDP_DEVICES="+listed(j.Device))
	}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	group.Own(cmd)
	cmd.Cancel = func() error { return group.Kill(cmd) }
	cmd.WaitDelay = 10 * time.Second // in case a child keeps the pipe open
	begin := time.Now()
	failure := cmd.Run()
	took := time.Since(begin)
	if ctx.Err() != nil {
		return nil
	}
	return r.note(j, cmd.ProcessState, took, failure, output.Bytes())
}

// note records a run and prints its result.
func (r *repeat) note(j *job, state *os.ProcessState, took time.Duration, failure error, output []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := entry{job: *j, Race: r.race, Seconds: took.Seconds(), OK: failure == nil}
	if state != nil { // it was started
		e.CPU = (state.UserTime() + state.SystemTime()).Seconds()
	}
	n := r.log.get(j).runs + 1
	if failure != nil {
		name := strings.NewReplacer("/", "-", " ", "-", ",", "").Replace(fmt.Sprintf("%v %s %d.txt", j, j.Build, n))
		e.Output = filepath.Join(r.dir, "failures", name)
		output = append(output, "\n"+failure.Error()+"\n"...)
		if err := os.WriteFile(e.Output, output, 0o644); err != nil {
			return err
		}
	}
	if err := r.log.add(e); err != nil {
		return err
	}
	r.left--
	all := r.log.get(j)
	fmt.Fprintf(r.out, "%-24v %3d of %d: %5.1f s; %d passed, %d failed; %d runs left\n",
		j, n, j.times, e.Seconds, all.runs-all.failed, all.failed, r.left)
	if failure != nil {
		fmt.Fprintf(r.out, "%v failed: %s\n", j, e.Output)
	}
	return nil
}

// errFailures says that at least one run failed.
var errFailures = errors.New("there were failures")
