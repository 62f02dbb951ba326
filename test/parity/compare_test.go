package parity

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A line is one observation.
type line struct {
	what, saw string
	must      bool // saw must be "yes"
}

func (l line) String() string { return l.what + ": " + l.saw }

// Prefixes of the lines that a script's process prints.
const (
	noted    = "note\t"
	required = "must\t"
)

func printLine(l line) {
	mark := noted
	if l.must {
		mark = required
	}
	os.Stdout.WriteString(mark + l.String() + "\n")
}

func parseLines(output string) (lines []line) {
	for text := range strings.Lines(output) {
		text = strings.TrimSuffix(text, "\n")
		text, isNote := strings.CutPrefix(text, noted)
		text, isMust := strings.CutPrefix(text, required)
		if what, saw, ok := strings.Cut(text, ": "); ok && (isNote || isMust) {
			lines = append(lines, line{what, saw, isMust})
		}
	}
	return lines
}

// unmet returns the requirements that were not met.
func unmet(lines []line) []line {
	return slices.DeleteFunc(slices.Clone(lines), func(l line) bool { return !l.must || l.saw == "yes" })
}

// difference is a known difference from package net, with its reason.
type difference struct {
	script, stack string
	line          string // the stack's line, which differs from package net's
	why           string
}

// absent replaces a line that one stack did not note.
const absent = "not noted"

// differences compares the lines of a stack with package net's, and returns differences that
// are not known, and known differences that did not occur.
func differences(script, stack string, net, other []line, known []difference) (wrong []string) {
	expected := map[string]string{} // by name of the observation
	for _, k := range known {
		if k.script == script && k.stack == stack {
			what, _, _ := strings.Cut(k.line, ": ")
			expected[what] = k.line
		}
	}
	for _, what := range names(net, other) {
		n, o := find(net, what), find(other, what)
		listed, isListed := expected[what]
		delete(expected, what)
		switch {
		case n == o && isListed:
			wrong = append(wrong, fmt.Sprintf("both have %q; the known difference %q no longer occurs", o, listed))
		case n != o && isListed && o != listed:
			wrong = append(wrong, fmt.Sprintf("net has %q, this stack %q, and the known difference is %q", n, o, listed))
		case n != o && !isListed:
			wrong = append(wrong, fmt.Sprintf("net has %q, this stack %q", n, o))
		}
	}
	for _, listed := range expected {
		wrong = append(wrong, fmt.Sprintf("the known difference %q is about a line that no script notes", listed))
	}
	slices.Sort(wrong)
	return wrong
}

// names returns the names of all observations, without duplicates.
func names(lists ...[]line) (all []string) {
	for _, l := range slices.Concat(lists...) {
		if !slices.Contains(all, l.what) {
			all = append(all, l.what)
		}
	}
	return all
}

// find returns the observation with the given name. Several observations are joined, so that
// their number and order count.
func find(lines []line, what string) string {
	var saw []string
	for _, l := range lines {
		if l.what == what {
			saw = append(saw, l.saw)
		}
	}
	if saw == nil {
		saw = []string{absent}
	}
	return what + ": " + strings.Join(saw, ", ")
}

func TestDifferences(t *testing.T) {
	lines := func(all ...string) (parsed []line) {
		for _, l := range all {
			parsed = append(parsed, parseLines(noted+l)...)
		}
		return parsed
	}
	list := []difference{
		{"s", "shm", "read: ECONNRESET", "because"},
		{"s", "iwarp", "read: EOF", "of another stack"},
		{"other", "shm", "close: EPIPE", "of another script"},
	}
	for _, c := range []struct {
		name       string
		net, other []line
		want       int
	}{
		{"a known difference", lines("read: EOF", "close: nil"), lines("read: ECONNRESET", "close: nil"), 0},
		{"a new difference", lines("read: EOF", "close: nil"), lines("read: ECONNRESET", "close: EPIPE"), 1},
		{"another difference than known", lines("read: EOF"), lines("read: EPIPE"), 1},
		{"a known difference that no longer occurs", lines("read: EOF"), lines("read: EOF"), 1},
		{"a known difference that is not noted", lines("close: nil"), lines("close: nil"), 1},
		{"a missing line", lines("read: EOF", "close: nil"), lines("read: ECONNRESET"), 1},
		{"an additional line", lines("read: EOF"), lines("read: ECONNRESET", "close: nil"), 1},
		{"a line twice", lines("read: EOF", "a: 1"), lines("read: ECONNRESET", "a: 1", "a: 1"), 1},
		{"two new differences", lines("read: EOF", "a: 1", "b: 1"), lines("read: ECONNRESET", "a: 2", "b: 2"), 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Len(t, differences("s", "shm", c.net, c.other, list), c.want)
		})
	}
}

func TestKnownDifferencesBelongToScripts(t *testing.T) {
	for _, k := range known {
		assert.True(t, slices.ContainsFunc(scripts(), func(s script) bool { return s.name == k.script }),
			"no script %q", k.script)
		assert.True(t, slices.ContainsFunc(stacks(), func(s stack) bool { return s.name == k.stack }) || k.stack == "shm",
			"no stack %q", k.stack)
		assert.NotEmpty(t, k.why)
	}
}
