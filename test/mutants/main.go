// Mutants checks that the tests notice faults that no operator of a mutation tool can express:
// broken rules of the protocol and missing security checks.
//
//	go run ./test/mutants [-run regexp]
//
// Run it in the root of the module. The text files in this directory list the faults:
//
//	credit-unchecked: a peer may send without credit
//	file credits/credits.go
//	test ./credits TestReceivedRejectsOverrun
//	-if int32(mseq-a.limit) > 0 {
//	+if int32(mseq-a.limit) > 1 {
//
// The text after "-" must occur exactly once in the file. The text after "+" replaces it. A text may
// begin and end within a line and may have several lines. A "-" after a "+" begins another
// replacement in the same file.
//
// The test must pass without the fault. With the fault it must fail, by a failure, a panic or a
// timeout. The go command's -overlay replaces the file, so the tree stays as it is. Mutants exits with
// status 1 if a fault survives, does not compile or no longer applies.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	pattern := flag.String("run", "", "test only the faults whose name matches this `regexp`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *pattern); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pattern string) error {
	chosen, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	all, err := load(filepath.Join("test", "mutants"))
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	tested, bad := 0, 0
	for _, m := range all {
		if !chosen.MatchString(m.name) {
			continue
		}
		tested++
		verdict := "ok    "
		err := m.killed(ctx, temp)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			bad++
			verdict = "FAILED"
		}
		fmt.Printf("%s %s: %s\n", verdict, m.name, m.fault)
		if err != nil {
			fmt.Println("      ", err)
		}
	}
	switch {
	case tested == 0:
		return fmt.Errorf("no fault matches %q", pattern)
	case bad > 0:
		return fmt.Errorf("%d of %d faults are not noticed", bad, tested)
	}
	fmt.Printf("all %d faults are noticed\n", tested)
	return nil
}

// mutant is a fault in one file of the tree.
type mutant struct {
	name, fault string
	file        string // relative to the root
	pkg, test   string // such as "./credits" and "TestMustUpdate"
	edits       []edit
}

// edit replaces the only occurrence of a text.
type edit struct{ before, after string }

// load reads all faults listed in a directory.
func load(dir string) (all []*mutant, err error) {
	lists, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			return nil, err
		}
		mutants, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", list, err)
		}
		all = append(all, mutants...)
	}
	return all, nil
}

// parse parses a list. Lines that begin with "#" are comments.
func parse(text string) (all []*mutant, err error) {
	for record := range strings.SplitSeq(text, "\n\n") {
		m := new(mutant)
		removing := false // the last line began with "-"
		for line := range strings.Lines(record) {
			line = strings.TrimSuffix(line, "\n")
			last := len(m.edits) - 1
			name, fault, named := strings.Cut(line, ": ")
			switch {
			case line == "" || line[0] == '#':
			case line[0] == '-' && removing:
				m.edits[last].before += "\n" + line[1:]
			case line[0] == '-':
				m.edits = append(m.edits, edit{before: line[1:]})
			case line[0] == '+' && removing:
				m.edits[last].after = line[1:]
			case line[0] == '+' && last >= 0:
				m.edits[last].after += "\n" + line[1:]
			case strings.HasPrefix(line, "file "):
				m.file = line[len("file "):]
			case strings.HasPrefix(line, "test "):
				m.pkg, m.test, _ = strings.Cut(line[len("test "):], " ")
			case named:
				m.name, m.fault = name, fault
			default:
				return nil, fmt.Errorf("malformed line %q", line)
			}
			removing = strings.HasPrefix(line, "-")
		}
		switch {
		case m.name == "" && m.file == "": // comments
		case m.name == "" || m.file == "" || m.test == "" || len(m.edits) == 0:
			return nil, fmt.Errorf("incomplete fault %q", record)
		default:
			all = append(all, m)
		}
	}
	return all, nil
}

// apply returns the text of m's file with the fault. The root is the directory of the module.
func (m *mutant) apply(root string) (string, error) {
	b, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	text := string(b)
	for _, e := range m.edits {
		if n := strings.Count(text, e.before); n != 1 {
			return "", fmt.Errorf("%s: text occurs %d times instead of once: %q", m.file, n, e.before)
		}
		text = strings.Replace(text, e.before, e.after, 1)
	}
	return text, nil
}

// killed returns an error if m's test does not notice the fault. It writes files to temp.
func (m *mutant) killed(ctx context.Context, temp string) error {
	text, err := m.apply(".")
	if err != nil {
		return err
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return err
	}
	changed := filepath.Join(temp, m.name+filepath.Ext(m.file))
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		return err
	}
	overlay := filepath.Join(temp, m.name+".json")
	if err := errors.Join(os.WriteFile(changed, []byte(text), 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		return err
	}
	passed, output, err := m.goTest(ctx)
	switch {
	case err != nil:
		return err
	case !passed || !strings.Contains(output, "--- PASS: "+m.test+" ("):
		return fmt.Errorf("%s %s does not pass without the fault: %s", m.pkg, m.test, output)
	}
	passed, output, err = m.goTest(ctx, "-overlay", overlay)
	switch {
	case err != nil:
		return err
	case passed:
		return fmt.Errorf("it survives %s %s", m.pkg, m.test)
	case !strings.Contains(output, "=== RUN   "+m.test+"\n"):
		return fmt.Errorf("%s %s did not run: %s", m.pkg, m.test, output)
	}
	return nil
}

// goTest runs m's test. The go command caches the result for the unchanged tree.
func (m *mutant) goTest(ctx context.Context, flags ...string) (passed bool, output string, err error) {
	parts := strings.Split(m.test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	args := append([]string{"test", "-vet=off", "-short", "-v", "-timeout=60s", "-run=" + strings.Join(parts, "/")}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, m.pkg)...)
	// Connections over shm end and wake waiters in other ways, which would hide faults of the rest.
	cmd.Env = append(os.Environ(), "SDP_DEVICES=iwarp")
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return false, string(b), ctx.Err()
	}
	return true, string(b), err
}
