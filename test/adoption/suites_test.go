package adoption

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// suite is a package of the standard library whose tests are run.
type suite struct {
	pkg   string
	args  []string
	iwarp []string // args over iwarp, if they are others
	part  string   // of which it is: short or all
	moves bool     // some connections live long enough to move
	dir   string   // of the module; "" for the standard library
}

var suites = []suite{
	{pkg: "crypto/tls", args: []string{"-short"}, part: "all"},
	{pkg: "net/http", args: []string{"-short"}, part: "short", moves: true},
	{pkg: "net", args: []string{"-short", "-skip", skipped}, iwarp: []string{"-short", "-skip", skippedOverRDMA}, part: "short"},
	{pkg: "net/rpc", part: "all"},
	{pkg: "net/smtp", part: "all"},
	{pkg: "net/textproto", part: "all"},
	{pkg: "net/http/httptest", part: "all"},
	{pkg: "net/http/httputil", part: "all"},
}

// skipped are the tests of package net that ask name servers, which a test machine may not reach.
const skipped = `^(TestLookup.*|TestDNS.*|TestGoLookup.*|TestResolve.*|TestCgoLookup.*|TestConcurrentPreferGoResolversDial|` +
	`TestDialCancel)$`

// skippedOverRDMA are also those that hang over RDMA, because they write to the bare socket.
const skippedOverRDMA = skipped + `|^(TestEndlessWrite|TestSplice|TestSendfileWithLargeFile)$`

// A difference is that a test's result over SDP is not that over TCP.
type difference struct {
	Suite  string
	Way    string // "" means all
	Go     string // prefix of the version; "" means all
	Test   string // "TestX/..." stands for all subtests of TestX
	Reason string
	// Sometimes: it depends on timing, and is no failure if it is gone.
	Sometimes bool
}

// applies reports whether there may be the difference in a run.
func (d *difference) applies(pkg, way, version string) bool {
	return d.Suite == pkg && (d.Way == "" || d.Way == way) && strings.HasPrefix(version, d.Go)
}

func (d *difference) matches(pkg, way, version, test string) bool {
	if !d.applies(pkg, way, version) {
		return false
	}
	parent, all := strings.CutSuffix(d.Test, "/...")
	return test == d.Test || all && strings.HasPrefix(test, parent+"/")
}

func known(t *testing.T) []difference {
	t.Helper()
	text, err := os.ReadFile("known.json")
	require.NoError(t, err)
	var ds []difference
	require.NoError(t, json.Unmarshal(text, &ds))
	for _, d := range ds {
		require.NotEmpty(t, d.Reason, d.Test)
	}
	return ds
}

// results are those of tests, by name: pass, fail or skip.
type results map[string]string

func (r results) String() string {
	n := make(map[string]int)
	for _, result := range r {
		n[result]++
	}
	return fmt.Sprintf("%d passed, %d failed, %d skipped", n["pass"], n["fail"], n["skip"])
}

// test runs a suite with a go command, and returns the results and what it printed for
// tests that failed.
func (s suite) test(t *testing.T, environ []string, command ...string) (results, map[string]string) {
	t.Helper()
	args := append(slices.Clone(command[1:]), "test", "-json", "-count=1", "-timeout=9m")
	args = append(append(args, s.args...), s.pkg)
	dir := s.dir
	if dir == "" {
		dir = t.TempDir()
	}
	out, err := try(t, dir, environ, command[0], args...)
	r, text := make(results), make(map[string]string)
	ended := ""
	lines := bufio.NewScanner(bytes.NewReader([]byte(out)))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			text[""] += lines.Text() + "\n"
			continue
		}
		switch event.Action {
		case "output":
			text[event.Test] += event.Output
		case "pass", "fail", "skip":
			if event.Test == "" {
				ended = event.Action
				continue
			}
			r[event.Test] = event.Action
		}
	}
	require.NotEmpty(t, ended, "%s did not run: %v\n%s", s.pkg, err, text[""])
	require.NotEmpty(t, r, "%s has no tests: %s", s.pkg, text[""])
	return r, text
}

// versions are the versions of Go to try: the one that runs this test, and with all parts
// one of each supported version, if it can be had.
func versions(t *testing.T) []string {
	here := strings.TrimSpace(run(t, t.TempDir(), env(), "go", "env", "GOVERSION"))
	vs := []string{here}
	if os.Getenv(variable) == "all" {
		for _, v := range []string{"go1.25.8", "go1.26.8", "go1.27.0"} {
			if v != here {
				vs = append(vs, v)
			}
		}
	}
	return vs
}

func TestSuites(t *testing.T) {
	want(t, "short")
	differences := known(t)
	for _, v := range versions(t) {
		t.Run(v, func(t *testing.T) {
			toolchain := "GOTOOLCHAIN=" + v
			if out, err := try(t, t.TempDir(), env(toolchain), "go", "version"); err != nil {
				t.Skipf("missing: %s: %s", v, out)
			}
			for _, s := range suites {
				t.Run(strings.ReplaceAll(s.pkg, "/", "."), func(t *testing.T) { // one level for -run
					want(t, s.part)
					s.compare(t, v, toolchain, differences)
				})
			}
		})
	}
}

// compare runs a suite over TCP and over SDP and compares the results.
func (s suite) compare(t *testing.T, version, toolchain string, differences []difference) {
	tcp, _ := s.test(t, env(toolchain), "go")
	t.Logf("tcp: %v", tcp)
	for _, w := range []way{asIs, moving, restless, iwarp} {
		t.Run(w.name, func(t *testing.T) {
			if w.name == iwarp.name {
				want(t, "all")
				if s.iwarp != nil {
					s.args = s.iwarp
				}
			}
			connections := newReport(t)
			got, text := s.test(t, env(append(slices.Clone(w.env), toolchain, connections.env())...), append([]string{sdp(t), "go"}, w.flags...)...)
			used := connections.count(t, "accept", w.device)
			t.Logf("%s: %v, %d connections accepted on tcp, %d used %s", w.name, got, connections.count(t, "accept", "tcp"), used, w.device)
			if s.moves || w.device == "tcp" {
				require.Positive(t, used+s.silent(), "no connection was the library's")
			}
			for _, wrong := range judge(s.pkg, w.name, version, tcp, got, differences) {
				t.Errorf("%s\n%s", wrong, text[strings.SplitN(wrong, ":", 2)[0]])
			}
		})
	}
}

// judge returns what is wrong with the results of a suite: differences from those over TCP
// that are not known, and known ones that are gone. TCP is the reference: a test that fails over it is
// no difference. A test that differs because one of its subtests does is none either.
func judge(pkg, way, version string, tcp, got results, known []difference) (wrong []string) {
	differs := slices.DeleteFunc(union(tcp, got), func(name string) bool { return tcp[name] == got[name] || tcp[name] == "fail" })
	seen := make(map[int]bool)
	for _, name := range differs {
		if slices.ContainsFunc(differs, func(other string) bool { return strings.HasPrefix(other, name+"/") }) {
			continue
		}
		i := slices.IndexFunc(known, func(d difference) bool { return d.matches(pkg, way, version, name) })
		if i < 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %s over tcp, %s over %s", name, or(tcp[name]), or(got[name]), way))
			continue
		}
		seen[i] = true
	}
	for i, d := range known {
		if !seen[i] && !d.Sometimes && d.applies(pkg, way, version) && tcp[d.Test] != "fail" {
			wrong = append(wrong, fmt.Sprintf("%s: a known difference that is gone; remove it from known.json", d.Test))
		}
	}
	return wrong
}

func TestJudge(t *testing.T) {
	known := []difference{
		{Suite: "net", Test: "TestA", Reason: "x"},
		{Suite: "net", Test: "TestB/...", Way: "at-once", Reason: "x"},
		{Suite: "net", Test: "TestC", Sometimes: true, Reason: "x"},
		{Suite: "net", Test: "TestD", Go: "go1.27", Reason: "x"},
	}
	tcp := results{"TestA": "pass", "TestB": "pass", "TestB/1": "pass", "TestC": "pass", "TestD": "pass"}
	as := func(changes ...string) results {
		r := maps.Clone(tcp)
		for i := 0; i < len(changes); i += 2 {
			r[changes[i]] = changes[i+1]
		}
		return r
	}
	require.Empty(t, judge("net", "at-once", "go1.26.8", tcp, as("TestA", "fail", "TestB/1", "fail"), known))
	require.Empty(t, judge("net", "at-once", "go1.26.8", tcp, as("TestA", "fail", "TestB/1", "fail", "TestC", "fail"), known))
	require.Empty(t, judge("net", "iwarp", "go1.26.8", tcp, as("TestA", "fail"), known))
	require.Len(t, judge("net", "iwarp", "go1.26.8", tcp, as("TestA", "fail", "TestB/1", "fail"), known), 1)
	require.Empty(t, judge("net", "at-once", "go1.26.8", tcp, as("TestA", "fail", "TestB/1", "fail", "TestB", "fail"), known))
	require.Len(t, judge("net", "at-once", "go1.26.8", tcp, as("TestA", "fail", "TestB", "fail"), known), 2, "no subtest fails")
	require.Len(t, judge("net", "iwarp", "go1.26.8", tcp, as(), known), 1, "a known difference is gone")
	require.Len(t, judge("net", "at-once", "go1.26.8", tcp, as("TestA", "fail"), known), 1, "known subtests' difference is gone")
	require.Len(t, judge("net", "iwarp", "go1.27.0", tcp, as("TestA", "fail"), known), 1, "one of that version is gone")
	require.Len(t, judge("net", "iwarp", "go1.26.8", tcp, as("TestA", "fail", "TestNew", "pass"), known), 1, "a test ran over SDP alone")
	tcp["TestE"] = "fail"
	require.Empty(t, judge("net", "iwarp", "go1.26.8", tcp, as("TestA", "fail", "TestE", "pass"), known), "it fails over TCP")
	delete(tcp, "TestD")
	require.Empty(t, judge("net/http", "at-once", "go1.26.8", tcp, tcp, known), "another suite's")
}

// silent is 1 for a suite that opens no TCP connection.
func (s suite) silent() int {
	if s.pkg == "net/textproto" {
		return 1
	}
	return 0
}

func or(result string) string {
	if result == "" {
		return "not run"
	}
	return result
}

// union returns the names of both, sorted.
func union(a, b results) []string {
	var names []string
	for name := range a {
		names = append(names, name)
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
