package suites

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// unsettled returns the tests to run again, by package: those that have not run, and those that
// have failed, or were skipped, once. They are test functions and their direct subtests. It counts failures in
// tried.
func (r *results) unsettled(base *results, tried map[id]int) map[string][]id {
	candidates := slices.DeleteFunc(r.worse(base), func(i id) bool { return tried[i] >= 2 })
	hanging := make(map[string]int)
	for _, i := range candidates {
		if r.outcome(i) == hung {
			hanging[i.Package]++
		}
	}
	again := make(map[string][]id)
	for _, i := range candidates {
		o := r.outcome(i)
		if o != absent {
			tried[i]++
		}
		if o == hung && hanging[i.Package] == 1 {
			tried[i] = 2 // only this test can have made the package hang
		}
		if tried[i] < 2 {
			again[i.Package] = append(again[i.Package], i)
		}
	}
	return again
}

// worse returns the test functions and their direct subtests that pass in base but not in r. It
// leaves out a test if one of its subtests is in the result.
func (r *results) worse(base *results) []id {
	var found []id
	for _, i := range base.sorted() {
		if strings.Count(i.Test, "/") > 1 || base.outcome(i) != passed {
			continue
		}
		switch r.outcome(i) {
		case failed, hung, skipped:
			found = append(found, i)
		case absent:
			// In a function that passes, such a subtest has a name that changes between runs.
			if i == i.top() || r.outcome(i.top()) != passed {
				found = append(found, i)
			}
		}
	}
	all := slices.Clone(found)
	return slices.DeleteFunc(found, func(i id) bool {
		return slices.ContainsFunc(all, func(o id) bool { return o.within(i) })
	})
}

// merge replaces the results of a test and its subtests by those of a later run. A test function
// passes if none of its subtests fails any more.
func (r *results) merge(later *results, one id) {
	maps.DeleteFunc(r.tests, func(i id, _ *test) bool { return i == one || i.within(one) })
	for i, t := range later.tests {
		if i == one || i.within(one) {
			r.tests[i] = t
		}
	}
	top := one.top()
	if top == one || later.tests[top] == nil {
		return
	}
	if r.tests[top] == nil {
		r.tests[top] = later.tests[top]
	}
	for i, t := range r.tests {
		if i.within(top) && (t.outcome == failed || t.outcome == hung) {
			return
		}
	}
	r.tests[top].outcome = passed
}

func TestMergeReplacesSubtests(t *testing.T) {
	got := events("fail A", "fail A/one", "fail AB", "fail B", "fail B/one", "fail B/two")
	got.merge(events("pass A", "pass A/two"), id{"p", "A"})
	assert.Equal(t, absent, got.outcome(id{"p", "A/one"}))
	assert.Equal(t, passed, got.outcome(id{"p", "A/two"}))
	assert.Equal(t, failed, got.outcome(id{"p", "AB"}))
	got.merge(events("pass B", "pass B/one"), id{"p", "B/one"})
	assert.Equal(t, failed, got.outcome(id{"p", "B"}))
	got.merge(events("pass B", "pass B/two"), id{"p", "B/two"})
	assert.Equal(t, passed, got.outcome(id{"p", "B"}))
}

func TestUnsettled(t *testing.T) {
	base := events("pass A", "pass B", "pass B/one", "pass B/one/deep", "pass B/two", "pass C", "pass C/port-1", "pass D", "fail E", "pass F", "pass F/one", "pass G")
	got := events("fail A", "fail B", "fail B/one", "fail B/one/deep", "pass C", "pass C/port-2", "run D", "skip G")
	tried := make(map[id]int)
	of := func() (names []string) {
		for _, i := range got.unsettled(base, tried)["p"] {
			names = append(names, i.Test)
		}
		return names
	}
	assert.Equal(t, []string{"A", "B/one", "B/two", "F/one", "G"}, of(), "D hangs")
	got.merge(events("pass A"), id{"p", "A"})
	got.merge(events("pass G"), id{"p", "G"})
	got.merge(events("pass F", "pass F/one"), id{"p", "F/one"})
	assert.Equal(t, []string{"B/two"}, of(), "B/one failed twice")
	assert.Equal(t, "^B$/^two$|^A$", pattern([]id{{"p", "B/two"}, {"p", "A"}}))
}
