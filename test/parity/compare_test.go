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
	must      bool // "yes" is required
}

func (l line) String() string { return l.what + ": " + l.saw }

// The processes of scripts print lines behind one of these.
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

// unmet returns the requirements that are not met.
func unmet(lines []line) []line {
	return slices.DeleteFunc(slices.Clone(lines), func(l line) bool { return !l.must || l.saw == "yes" })
}

// A difference from package net that is known and has a reason.
type difference struct {
	script, stack string
	line          string // what the stack's script notes instead of package net's line
	why           string
}

// absent stands for a line that one stack did not note.
const absent = "not noted"

// differences compares the lines of a stack with package net's, and with what is
// known of the two.
func differences(script, stack string, net, other []line, known []difference) (wrong []string) {
	expected := map[string]string{} // what: the other line
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
			wrong = append(wrong, fmt.Sprintf("net has %q, this %q, and the known difference is %q", n, o, listed))
		case n != o && !isListed:
			wrong = append(wrong, fmt.Sprintf("net has %q, this %q", n, o))
		}
	}
	for _, listed := range expected {
		wrong = append(wrong, fmt.Sprintf("the known difference %q is about a line that nobody notes", listed))
	}
	slices.Sort(wrong)
	return wrong
}

// names returns the names of all observations, each once.
func names(lists ...[]line) (all []string) {
	for _, l := range slices.Concat(lists...) {
		if !slices.Contains(all, l.what) {
			all = append(all, l.what)
		}
	}
	return all
}

// find returns the line of that name. Several are joined, so that their number
// and their order count.
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
		{"s", "iwarp", "read: EOF", "another stack's"},
		{"other", "shm", "close: EPIPE", "another script's"},
	}
	for _, c := range []struct {
		name       string
		net, other []line
		want       int
	}{
		{"a known one", lines("read: EOF", "close: nil"), lines("read: ECONNRESET", "close: nil"), 0},
		{"a new one", lines("read: EOF", "close: nil"), lines("read: ECONNRESET", "close: EPIPE"), 1},
		{"another than known", lines("read: EOF"), lines("read: EPIPE"), 1},
		{"one that no longer occurs", lines("read: EOF"), lines("read: EOF"), 1},
		{"one that nobody notes", lines("close: nil"), lines("close: nil"), 1},
		{"a line too few", lines("read: EOF", "close: nil"), lines("read: ECONNRESET"), 1},
		{"a line too many", lines("read: EOF"), lines("read: ECONNRESET", "close: nil"), 1},
		{"a line twice", lines("read: EOF", "a: 1"), lines("read: ECONNRESET", "a: 1", "a: 1"), 1},
		{"two new ones", lines("read: EOF", "a: 1", "b: 1"), lines("read: ECONNRESET", "a: 2", "b: 2"), 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Len(t, differences("s", "shm", c.net, c.other, list), c.want)
		})
	}
}

func TestKnownDifferencesBelongToScripts(t *testing.T) {
	for _, k := range known {
		assert.True(t, slices.ContainsFunc(scripts(), func(s script) bool { return s.name == k.script }),
			"there is no script %q", k.script)
		assert.True(t, slices.ContainsFunc(stacks(), func(s stack) bool { return s.name == k.stack }) || k.stack == "shm",
			"there is no stack %q", k.stack)
		assert.NotEmpty(t, k.why)
	}
}
