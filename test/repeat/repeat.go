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

// repeat is what is to be repeated, and how.
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

// run does it all. Its error is the first thing that kept it from going on, or
// says that there were failures.
func (r *repeat) run(ctx context.Context, only string) (err error) {
	chosen, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	for _, dir := range []*string{&r.dir, &r.root} { // programs run elsewhere
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
	for _, beside := range []bool{true, false} {
		if err := r.all(ctx, r.rounds(jobs, beside), beside); err != nil {
			return err
		}
	}
	return r.log.summary(r.out, jobs, ctx.Err() != nil)
}

// rounds returns the runs that are still to be done of jobs that have others
// beside them, or of those that do not: one of each job, and the next one of each,
// so that every job has had its share whenever one looks.
func (r *repeat) rounds(jobs []*job, beside bool) (todo []*job) {
	for round := 0; ; round++ {
		some := false
		for _, j := range jobs {
			if j.beside == beside && round < j.times {
				some = true
				if round >= r.log.of(j).runs {
					todo = append(todo, j)
				}
			}
		}
		if !some {
			return todo
		}
	}
}

// all does the runs, several at a time if they may be, until it is interrupted.
func (r *repeat) all(ctx context.Context, todo []*job, beside bool) error {
	n := 1
	if beside {
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

// once is one run. What is interrupted has not been.
func (r *repeat) once(ctx context.Context, j *job) error {
	if ctx.Err() != nil {
		return nil
	}
	// Go's own timeout prints what hangs; this one is for what hangs nonetheless.
	limited, cancel := context.WithTimeout(ctx, r.timeout+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(limited, j.argv[0], j.argv[1:]...)
	cmd.Dir = j.directory
	// With the race detector a process would sleep for a second before it exits.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	if j.Device != "" {
		cmd.Env = append(cmd.Env, "SDP_DEVICES="+listed(j.Device))
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	group.Own(cmd)
	cmd.Cancel = func() error { return group.Kill(cmd) }
	cmd.WaitDelay = 10 * time.Second // for a child that has the pipe
	begin := time.Now()
	failure := cmd.Run()
	took := time.Since(begin)
	if ctx.Err() != nil {
		return nil
	}
	return r.note(j, cmd.ProcessState, took, failure, said.Bytes())
}

// note records a run, and prints what has come of it.
func (r *repeat) note(j *job, state *os.ProcessState, took time.Duration, failure error, said []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := entry{job: *j, Race: r.race, Seconds: took.Seconds(), OK: failure == nil}
	if state != nil { // it was started
		e.CPU = (state.UserTime() + state.SystemTime()).Seconds()
	}
	n := r.log.of(j).runs + 1
	if failure != nil {
		name := strings.NewReplacer("/", "-", " ", "-", ",", "").Replace(fmt.Sprintf("%v %s %d.txt", j, j.Build, n))
		e.Output = filepath.Join(r.dir, "failures", name)
		said = append(said, "\n"+failure.Error()+"\n"...)
		if err := os.WriteFile(e.Output, said, 0o644); err != nil {
			return err
		}
	}
	if err := r.log.add(e); err != nil {
		return err
	}
	r.left--
	all := r.log.of(j)
	fmt.Fprintf(r.out, "%-24v %3d of %d: %5.1f s; %d passed, %d failed; %d runs are left\n",
		j, n, j.times, e.Seconds, all.runs-all.failed, all.failed, r.left)
	if failure != nil {
		fmt.Fprintf(r.out, "%v has failed: %s\n", j, e.Output)
	}
	return nil
}

// errFailures says that not everything has passed.
var errFailures = errors.New("there were failures")
