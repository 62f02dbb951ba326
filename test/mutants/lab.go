package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// lab tests mutants of the tree in root. Files that it builds are in temp.
type lab struct {
	root, temp string

	mu     sync.Mutex // guards the fields below
	out    io.Writer
	sound  map[soundKey]func() (time.Duration, error) // results for the unchanged tree
	number int                                        // of directories in temp
}

// soundKey identifies a test of the unchanged tree, or the build of a package's tests if the
// test has no name.
type soundKey struct {
	test
	race  bool
	times int
}

func newLab(root, temp string, out io.Writer) *lab {
	return &lab{root: root, temp: temp, out: out, sound: make(map[soundKey]func() (time.Duration, error))}
}

// try tests all mutants, jobs of them concurrently. It prints a line for each and a summary.
// The error names the mutants that were not killed.
func (l *lab) try(ctx context.Context, mutants []*mutant, jobs int) error {
	start := time.Now()
	var survivors []string
	var workers sync.WaitGroup
	queue := make(chan *mutant)
	for range max(jobs, 1) {
		workers.Go(func() {
			for m := range queue {
				start := time.Now()
				err := l.kill(ctx, m)
				l.mu.Lock()
				verdict := "killed"
				if err != nil {
					verdict = "NOT KILLED: " + err.Error()
					survivors = append(survivors, m.name)
				}
				fmt.Fprintf(l.out, "%5.1f s  %s: %s: %s\n", time.Since(start).Seconds(), m.name, m.fault, verdict)
				l.mu.Unlock()
			}
		})
	}
	for _, m := range mutants {
		queue <- m
	}
	close(queue)
	workers.Wait()
	fmt.Fprintf(l.out, "%d of %d mutants killed in %.0f s\n", len(mutants)-len(survivors), len(mutants), time.Since(start).Seconds())
	if len(survivors) > 0 {
		return fmt.Errorf("not killed: %s", strings.Join(survivors, ", "))
	}
	return ctx.Err()
}

// kill returns nil if every test that the mutant names fails because of the fault.
func (l *lab) kill(ctx context.Context, m *mutant) error {
	dir, err := l.dir()
	if err != nil {
		return err
	}
	overlay, err := l.apply(ctx, m, dir)
	if err != nil {
		return err
	}
	built := make(map[string]string) // by package
	for _, t := range m.tests {
		took, err := l.passes(ctx, t, m)
		if err != nil {
			return err
		}
		binary, ok := built[t.pkg]
		if !ok {
			binary = filepath.Join(dir, fmt.Sprintf("%d.test", len(built)))
			if err := l.build(ctx, t.pkg, m.race, overlay, binary); err != nil {
				return fmt.Errorf("does not compile: %w", err)
			}
			built[t.pkg] = binary
		}
		// Many mutants make the test hang.
		timeout := min(m.timeout, patience+10*took)
		passed, output, err := l.test(ctx, t, binary, timeout, m.times)
		switch {
		case err != nil:
			return err
		case passed:
			return fmt.Errorf("it SURVIVES %v", t)
		case !bytes.Contains(output, []byte("=== RUN   "+t.name)):
			return fmt.Errorf("%v did not run: %s", t, output)
		}
	}
	return os.RemoveAll(dir)
}

// dir makes a new directory in temp.
func (l *lab) dir() (string, error) {
	l.mu.Lock()
	l.number++
	dir := filepath.Join(l.temp, fmt.Sprint(l.number))
	l.mu.Unlock()
	return dir, os.Mkdir(dir, 0o700)
}

// apply patches copies of the files in dir, and returns an overlay that replaces the originals
// by the copies.
func (l *lab) apply(ctx context.Context, m *mutant, dir string) (overlay string, err error) {
	root, err := filepath.Abs(l.root)
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for _, file := range m.files {
		original, copied := filepath.Join(root, file), filepath.Join(dir, "tree", file)
		b, err := os.ReadFile(original)
		if err != nil {
			return "", fmt.Errorf("no longer applies: %w", err)
		}
		if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(copied, b, 0o600); err != nil {
			return "", err
		}
		replace[original] = copied
	}
	git := exec.CommandContext(ctx, "git", "apply", m.patch)
	git.Dir = filepath.Join(dir, "tree")
	git.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+dir) // ignore enclosing repositories
	if output, err := git.CombinedOutput(); err != nil {
		return "", fmt.Errorf("no longer applies: %w: %s", err, bytes.TrimSpace(output))
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}

// build compiles a package's tests.
func (l *lab) build(ctx context.Context, pkg string, race bool, overlay, binary string) error {
	// Debug information would take a third of the linker's time. It and inlining would take two
	// fifths of the compiler's for the package and its tests; other packages are compiled as usual.
	args := []string{"test", "-c", "-vet=off", "-ldflags=-w", "-gcflags=-l -dwarf=false", "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	if race {
		args = append(args, "-race")
	}
	build := exec.CommandContext(ctx, "go", append(args, pkg)...)
	build.Dir = l.root
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(output))
	}
	return nil
}

// test runs one test like go test, up to the given number of times until it fails, and reports
// whether it passed.
func (l *lab) test(ctx context.Context, t test, binary string, timeout time.Duration, times int) (passed bool, output []byte, err error) {
	const grace = 10 * time.Second // in case the binary does not notice its timeout
	bounded, cancel := context.WithTimeout(ctx, timeout+grace)
	defer cancel()
	run := exec.CommandContext(bounded, binary, "-test.run="+t.pattern(), "-test.timeout="+timeout.String(),
		fmt.Sprint("-test.count=", times), "-test.failfast", "-test.v", "-test.paniconexit0")
	run.Dir = filepath.Join(l.root, t.pkg)
	// Connections over shm end and wake waiters in other ways, which would hide faults that
	// affect every other device.
	run.Env = append(os.Environ(), "SDP_DEVICES=iwarp")
	run.WaitDelay = time.Second // in case processes that the test started outlive it
	output, err = run.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return false, output, ctx.Err()
	case err == nil:
		return true, output, nil
	case errors.As(err, &exit):
		return false, output, nil
	}
	return false, output, fmt.Errorf("%v: %w", t, err)
}

// patience is added to ten times the duration of a test on the unchanged tree. The sum is the
// test's timeout with a fault.
const patience = 5 * time.Second

// passes checks that the test passes on the unchanged tree, as often as it may run with the fault:
// a test that fails by chance would kill every mutant. It returns how long that took, and does so
// once for all mutants that give a test as many runs.
func (l *lab) passes(ctx context.Context, t test, m *mutant) (took time.Duration, err error) {
	return l.once(soundKey{t, m.race, m.times}, func() (time.Duration, error) {
		binary := filepath.Join(l.temp, fmt.Sprintf("%s-%t.test", strings.ReplaceAll(t.pkg[2:], "/", "-"), m.race))
		_, err := l.once(soundKey{test{pkg: t.pkg}, m.race, 0}, func() (time.Duration, error) {
			return 0, l.build(ctx, t.pkg, m.race, "", binary)
		})
		if err != nil {
			return 0, err
		}
		start := time.Now()
		passed, output, err := l.test(ctx, t, binary, m.timeout, m.times)
		took := time.Since(start)
		switch {
		case err != nil:
			return 0, err
		case !passed:
			return 0, fmt.Errorf("%v fails on the unchanged tree: %s", t, output)
		case !bytes.Contains(output, []byte("--- PASS: "+t.name+" (")):
			return 0, fmt.Errorf("%v does not exist or was skipped: %s", t, output)
		}
		return took, nil
	})
}

// once returns the result of do, which is called once for each key.
func (l *lab) once(key soundKey, do func() (time.Duration, error)) (time.Duration, error) {
	l.mu.Lock()
	known, ok := l.sound[key]
	if !ok {
		known = sync.OnceValues(do)
		l.sound[key] = known
	}
	l.mu.Unlock()
	return known()
}
