package suites

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// judge returns the differences of got from base that are not known, and the known ones that
// no longer occur.
func judge(base, got *results, known []difference) (unknown []id, gone []difference) {
	found := differences(base, got)
	for _, i := range found {
		if !slices.ContainsFunc(known, func(d difference) bool { return d.id() == i }) {
			unknown = append(unknown, i)
		}
	}
	for _, d := range known {
		if base.outcome(d.id()) == passed && got.outcome(d.id()) == passed {
			gone = append(gone, d)
		}
	}
	return unknown, gone
}

// differences returns the tests whose outcome in got is another one than in base. It leaves out
// a test if one of its subtests differs. A test function that runs in one of them only is a
// difference. Such a subtest is not, because some have names that change. What fails or hangs in
// base is none either: TCP is the reference, and it does not say what should happen.
func differences(base, got *results) []id {
	var found []id
	for _, i := range slices.Compact(slices.SortedFunc(slices.Values(slices.Concat(base.sorted(), got.sorted())), id.compare)) {
		was, is := base.outcome(i), got.outcome(i)
		if was == is || was == failed || was == hung || (was == absent || is == absent) && i != i.top() {
			continue
		}
		found = append(found, i)
	}
	all := slices.Clone(found)
	return slices.DeleteFunc(found, func(i id) bool {
		return slices.ContainsFunc(all, func(o id) bool { return o.within(i) })
	})
}

// events returns the results of one event per line: an action, and a test if there is one.
func events(lines ...string) *results {
	var text strings.Builder
	for _, line := range lines {
		action, test, _ := strings.Cut(line, " ")
		text.WriteString(`{"Action":"` + action + `","Package":"p","Test":"` + test + `","Output":"said","Elapsed":2}` + "\n")
	}
	return parse(strings.NewReader(text.String() + `{"Action":"pa`))
}

func TestParse(t *testing.T) {
	got := events(
		"run A", "output A", "pass A", "run B", "pause B", "run C", "skip C",
		"cont B", "run B/one", "fail B/one", "fail B", "run D", "run E", "pause E", "output", "fail",
	)
	for name, want := range map[string]outcome{
		"A": passed, "B": failed, "B/one": failed, "C": skipped, "D": hung, "E": absent, "F": absent,
	} {
		assert.Equal(t, want, got.outcome(id{"p", name}), name)
	}
	assert.Equal(t, 1, got.count(passed))
	assert.Equal(t, "said", got.tests[id{"p", "A"}].tail())
	assert.Equal(t, map[string]float64{"p": 2}, got.seconds)
	assert.Equal(t, "saidsaid", got.other.String())
}

func TestJudge(t *testing.T) {
	base := events("pass A", "pass B", "pass B/one", "pass B/two", "pass C", "fail D", "pass E", "pass E/port-1", "pass F", "skip G",
		"pass H", "pass H/one", "skip I", "fail J")
	got := events("pass A", "fail B", "fail B/one", "pass B/two", "run C", "fail D", "pass E", "pass E/port-2", "skip G",
		"pass H", "skip H/one", "pass I", "pass J", "pass K")
	known := func(tests ...string) (known []difference) {
		for _, name := range tests {
			known = append(known, difference{Package: "p", Test: name})
		}
		return known
	}
	unknown, gone := judge(base, got, nil)
	assert.Equal(t, []id{{"p", "B/one"}, {"p", "C"}, {"p", "F"}, {"p", "H/one"}, {"p", "I"}, {"p", "K"}}, unknown)
	assert.Empty(t, gone)
	unknown, gone = judge(base, got, known("A", "B/one", "C", "D", "F", "G", "H/one", "I", "K", "E/port-1"))
	assert.Empty(t, unknown)
	assert.Equal(t, known("A"), gone)
}

func TestKnownDifferencesAreComplete(t *testing.T) {
	known, err := readKnown(knownText)
	require.NoError(t, err)
	for _, d := range known {
		assert.True(t, slices.ContainsFunc(suites, func(s suite) bool { return s.name == d.Suite }), "%v", d)
		assert.NotEmpty(t, d.Stacks, "%v", d)
		for _, name := range d.Stacks {
			assert.True(t, slices.ContainsFunc(stacks, func(s stack) bool { return s.name == name }), "%v", d)
		}
		assert.NotEmpty(t, d.Package, "%v", d)
		assert.NotEmpty(t, d.Test, "%v", d)
		assert.NotEmpty(t, d.Reason, "%v", d)
	}
}
