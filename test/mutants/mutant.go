package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// mutant is a patch. It has a header of "Key: value" lines, an empty line, and the output of
// git diff. The keys are
//
//	Fault:   what is wrong in the mutant
//	Test:    a package and a test in it that must fail, such as
//	         "./credits TestMustUpdate"; at least one such line
//	Timeout: how long a test may take; the default is 20 s
//	Race:    yes, if only the race detector notices the fault
//	Times:   how often a test may run until it fails; the default is once. For faults
//	         that depend on timing
type mutant struct {
	name    string // of the file, without its suffix
	patch   string // path of the file
	fault   string
	tests   []test
	timeout time.Duration
	race    bool
	times   int
	files   []string // that it changes, relative to the root
}

// test is a test, or a subtest in the notation of -test.run.
type test struct {
	pkg  string // such as "./credits"
	name string // such as "TestMustUpdate" or "TestConformance/crc"
}

func (t test) String() string { return t.pkg + " " + t.name }

const defaultTimeout = 20 * time.Second

// load reads the patches in dir whose names match chosen, sorted by name.
func load(dir string, chosen *regexp.Regexp) ([]*mutant, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var all []*mutant
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".patch")
		if !chosen.MatchString(name) {
			continue
		}
		m, err := read(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		m.name = name
		all = append(all, m)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no patch in %s matches %q", dir, chosen)
	}
	return all, nil
}

func read(path string) (*mutant, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(absolute)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m := &mutant{patch: absolute, timeout: defaultTimeout, times: 1}
	lines := bufio.NewScanner(f)
	for lines.Scan() && lines.Text() != "" {
		if err := m.header(lines.Text()); err != nil {
			return nil, err
		}
	}
	for lines.Scan() {
		if file, ok := strings.CutPrefix(lines.Text(), "+++ b/"); ok {
			m.files = append(m.files, file)
		}
	}
	switch {
	case lines.Err() != nil:
		return nil, lines.Err()
	case m.fault == "":
		return nil, errors.New("no Fault")
	case len(m.tests) == 0:
		return nil, errors.New("no Test")
	case len(m.files) == 0:
		return nil, errors.New("changes no file")
	}
	return m, nil
}

// header parses a line of the header.
func (m *mutant) header(line string) (err error) {
	key, value, _ := strings.Cut(line, ": ")
	switch key {
	case "Fault":
		m.fault = value
	case "Test":
		pkg, name, ok := strings.Cut(value, " ")
		if !ok || !strings.HasPrefix(pkg, "./") {
			return fmt.Errorf("%q: want a package and a test, as in ./credits TestMustUpdate", line)
		}
		m.tests = append(m.tests, test{pkg, name})
	case "Timeout":
		m.timeout, err = time.ParseDuration(value)
	case "Race":
		m.race = value == "yes"
	case "Times":
		m.times, err = strconv.Atoi(value)
	default:
		err = fmt.Errorf("%q: unknown key in the header", line)
	}
	return err
}

// pattern returns an argument for -test.run that matches only this test.
func (t test) pattern() string {
	parts := strings.Split(t.name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}
