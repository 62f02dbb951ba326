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

// lab tries mutants of the tree in root. What it builds is in temp.
type lab struct {
	root, temp string

	mu     sync.Mutex // guards what follows
	out    io.Writer
	sound  map[soundKey]func() (time.Duration, error) // what is known of the unchanged tree
	number int                                        // of things in temp
}

// soundKey is a test of the unchanged tree, or its package's tests if it has no
// name.
type soundKey struct {
	test
	race bool
}

func newLab(root, temp string, out io.Writer) *lab {
	return &lab{root: root, temp: temp, out: out, sound: make(map[soundKey]func() (time.Duration, error))}
}

// try tries all mutants, jobs of them beside each other, and prints a line for
// each and a last one for all. The error says how many were not killed.
func (l *lab) try(ctx context.Context, mutants []*mutant, jobs int) error {
	start := time.Now()
	var spared []string
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
					spared = append(spared, m.name)
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
	fmt.Fprintf(l.out, "%d of %d mutants killed in %.0f s\n", len(mutants)-len(spared), len(mutants), time.Since(start).Seconds())
	if len(spared) > 0 {
		return fmt.Errorf("not killed: %s", strings.Join(spared, ", "))
	}
	return ctx.Err()
}

// kill returns nil if every test that the mutant names fails because of it.
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
		// Many a mutant only hangs.
		timeout := min(m.timeout, patience+10*took*time.Duration(m.times))
		passed, said, err := l.test(ctx, t, binary, timeout, m.times)
		switch {
		case err != nil:
			return err
		case passed:
			return fmt.Errorf("it SURVIVES %v", t)
		case !bytes.Contains(said, []byte("=== RUN   "+t.name)):
			return fmt.Errorf("%v did not run: %s", t, said)
		}
	}
	return os.RemoveAll(dir)
}

// dir makes a directory in temp.
func (l *lab) dir() (string, error) {
	l.mu.Lock()
	l.number++
	dir := filepath.Join(l.temp, fmt.Sprint(l.number))
	l.mu.Unlock()
	return dir, os.Mkdir(dir, 0o700)
}

// apply patches copies of the files, below dir, and returns the overlay that
// puts them in place of the originals.
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
	git.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+dir) // no repository around it
	if said, err := git.CombinedOutput(); err != nil {
		return "", fmt.Errorf("no longer applies: %w: %s", err, bytes.TrimSpace(said))
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
	// What a debugger wants takes the linker a third of its time.
	args := []string{"test", "-c", "-vet=off", "-ldflags=-w", "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	if race {
		args = append(args, "-race")
	}
	build := exec.CommandContext(ctx, "go", append(args, pkg)...)
	build.Dir = l.root
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(said))
	}
	return nil
}

// test runs one test alone, as go test would, so many times or until it fails, and
// reports whether it passed.
func (l *lab) test(ctx context.Context, t test, binary string, timeout time.Duration, times int) (passed bool, said []byte, err error) {
	const grace = 10 * time.Second // for a binary that does not even notice its timeout
	bounded, cancel := context.WithTimeout(ctx, timeout+grace)
	defer cancel()
	run := exec.CommandContext(bounded, binary, "-test.run="+t.pattern(), "-test.timeout="+timeout.String(),
		fmt.Sprint("-test.count=", times), "-test.failfast", "-test.v", "-test.paniconexit0")
	run.Dir = filepath.Join(l.root, t.pkg)
	// Over shm a connection ends and wakes up by other means, which would hide
	// faults in those of every other device.
	run.Env = append(os.Environ(), "SDP_DEVICES=iwarp")
	run.WaitDelay = time.Second // for processes of the test's own that outlive it
	said, err = run.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return false, said, ctx.Err()
	case err == nil:
		return true, said, nil
	case errors.As(err, &exit):
		return false, said, nil
	}
	return false, said, fmt.Errorf("%v: %w", t, err)
}

// patience is what a test may take longer, with a fault, than ten times as long as
// without.
const patience = 5 * time.Second

// passes returns how long the test took on the unchanged tree, if it passes there. It
// is run once for all mutants.
func (l *lab) passes(ctx context.Context, t test, m *mutant) (took time.Duration, err error) {
	return l.once(soundKey{t, m.race}, func() (time.Duration, error) {
		binary := filepath.Join(l.temp, fmt.Sprintf("%s-%t.test", strings.ReplaceAll(t.pkg[2:], "/", "-"), m.race))
		_, err := l.once(soundKey{test{pkg: t.pkg}, m.race}, func() (time.Duration, error) {
			return 0, l.build(ctx, t.pkg, m.race, "", binary)
		})
		if err != nil {
			return 0, err
		}
		start := time.Now()
		passed, said, err := l.test(ctx, t, binary, m.timeout, 1)
		took := time.Since(start)
		switch {
		case err != nil:
			return 0, err
		case !passed:
			return 0, fmt.Errorf("%v fails on the unchanged tree: %s", t, said)
		case !bytes.Contains(said, []byte("--- PASS: "+t.name+" (")):
			return 0, fmt.Errorf("%v is not there, or skips: %s", t, said)
		}
		return took, nil
	})
}

// once returns what do returns, which is called once for each key.
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
