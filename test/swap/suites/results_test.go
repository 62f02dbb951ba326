package suites

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
)

// id identifies a test.
type id struct{ Package, Test string }

func (i id) String() string { return i.Package + " " + i.Test }

func (i id) compare(o id) int {
	return cmp.Or(cmp.Compare(i.Package, o.Package), cmp.Compare(i.Test, o.Test))
}

// top returns the test function that a subtest belongs to.
func (i id) top() id {
	i.Test, _, _ = strings.Cut(i.Test, "/")
	return i
}

// within reports whether i is a subtest of o.
func (i id) within(o id) bool {
	return i.Package == o.Package && strings.HasPrefix(i.Test, o.Test+"/")
}

// outcome is how a test ended.
type outcome string

const (
	passed   outcome = "passes"
	failed   outcome = "fails"
	skipped  outcome = "is skipped"
	hung     outcome = "does not end"
	paused   outcome = "waits to run in parallel"
	absent   outcome = "does not run"
	maxLines         = 30
)

// test is the result of a test.
type test struct {
	outcome outcome
	seconds float64
	output  []string
}

// tail returns the last lines of the test's output.
func (t *test) tail() string {
	if t == nil {
		return ""
	}
	return strings.Join(t.output[max(0, len(t.output)-maxLines):], "")
}

// results are the results of a run of go test.
type results struct {
	tests   map[id]*test
	seconds map[string]float64 // of packages that ran to their end
	other   bytes.Buffer       // output that belongs to no test
}

// parse parses the output of go test -json.
func parse(r io.Reader) *results {
	got := &results{tests: make(map[id]*test), seconds: make(map[string]float64)}
	for d := json.NewDecoder(r); ; {
		var e struct {
			Action, Package, Test, Output string
			Elapsed                       float64
		}
		if d.Decode(&e) != nil {
			return got // the end, or an incomplete line of an interrupted run
		}
		if e.Test == "" {
			got.other.WriteString(e.Output)
			if e.Action == "pass" || e.Action == "fail" {
				got.seconds[e.Package] = e.Elapsed
			}
			continue
		}
		key := id{e.Package, e.Test}
		one := got.tests[key]
		if one == nil {
			one = new(test)
			got.tests[key] = one
		}
		one.seconds = max(one.seconds, e.Elapsed)
		switch e.Action {
		case "run", "cont":
			one.outcome = hung // unless a later event says otherwise
		case "pause":
			one.outcome = paused
		case "pass":
			one.outcome = passed
		case "fail":
			one.outcome = failed
		case "skip":
			one.outcome = skipped
		case "output":
			one.output = append(one.output, e.Output)
		}
	}
}

// outcome returns how a test ended.
func (r *results) outcome(i id) outcome {
	if t := r.tests[i]; t != nil && t.outcome != paused {
		return t.outcome
	}
	return absent
}

// count returns the number of tests with the given outcome.
func (r *results) count(o outcome) (n int) {
	for _, t := range r.tests {
		if t.outcome == o {
			n++
		}
	}
	return n
}

// sorted returns all tests, sorted.
func (r *results) sorted() []id {
	return slices.SortedFunc(maps.Keys(r.tests), id.compare)
}
