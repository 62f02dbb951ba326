package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// needGit skips a test that applies patches if git is missing.
func needGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("missing: git")
	}
}

// TestPatchesApply: after a change to a file, it tells which patches must be adapted.
func TestPatchesApply(t *testing.T) {
	needGit(t)
	mutants, err := load(".", regexp.MustCompile(""))
	require.NoError(t, err)
	l := newLab(filepath.Join("..", ".."), t.TempDir(), nil)
	for _, m := range mutants {
		dir, err := l.dir()
		require.NoError(t, err)
		_, err = l.apply(t.Context(), m, dir)
		assert.NoError(t, err, m.name)
	}
}

// TestNamedTestsExist: after a test was renamed, it tells which patches must be adapted. A patch
// whose test does not exist kills nothing.
func TestNamedTestsExist(t *testing.T) {
	mutants, err := load(".", regexp.MustCompile(""))
	require.NoError(t, err)
	sources := map[string]string{} // by package
	for _, m := range mutants {
		for _, of := range m.tests {
			if _, read := sources[of.pkg]; !read {
				paths, err := filepath.Glob(filepath.Join("..", "..", of.pkg, "*_test.go"))
				require.NoError(t, err)
				for _, path := range paths {
					source, err := os.ReadFile(path)
					require.NoError(t, err)
					sources[of.pkg] += string(source)
				}
			}
			name, _, _ := strings.Cut(of.name, "/")
			assert.True(t, strings.Contains(sources[of.pkg], "\nfunc "+name+"("), "%s: %v does not exist", m.name, of)
		}
	}
}

func TestParts(t *testing.T) {
	all, err := load(".", regexp.MustCompile(""))
	require.NoError(t, err)
	var parts []*mutant
	for _, share := range []string{"1/3", "2/3", "3/3"} {
		some, err := part(all, share)
		require.NoError(t, err)
		assert.InDelta(t, len(all)/3, len(some), 1)
		parts = append(parts, some...)
	}
	assert.ElementsMatch(t, all, parts)
	for _, share := range []string{"", "0/2", "3/2", "1", "1/0", "-1/2", "1/2/3", "a/b"} {
		_, err := part(all, share)
		assert.ErrorContains(t, err, fmt.Sprintf("part %q: want one such as 1/2", share))
	}
}

// files is the module whose mutants these tests use.
var files = map[string]string{
	"go.mod": "module example.com/sum\n\ngo 1.25.0\n",
	"sum/sum.go": `package sum

func Sum(numbers ...int) (sum int) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}
`,
	"sum/sum_test.go": `package sum

import "testing"

func TestSum(t *testing.T) {
	t.Run("of three", func(t *testing.T) {
		if Sum(1, 2, 3) != 6 {
			t.Error("wrong")
		}
	})
}

func TestNothing(t *testing.T) {
	if Sum() != 0 {
		t.Error("wrong")
	}
}

func TestSkipped(t *testing.T) { t.Skip() }

func TestFails(t *testing.T) { t.Error("always") }

var runs int

func TestTwiceFails(t *testing.T) {
	if runs++; runs == 2 {
		t.Error("the second time")
	}
}
`,
}

// sumPatch returns a patch that replaces one line of sum.go.
func sumPatch(head, old, changed string) string {
	return head + fmt.Sprintf(`
diff --git a/sum/sum.go b/sum/sum.go
--- a/sum/sum.go
+++ b/sum/sum.go
@@ -4,3 +4,3 @@
 	for _, n := range numbers {
-		%s
+		%s
 	}
`, old, changed)
}

// TestVerdicts has a mutant for each verdict.
func TestVerdicts(t *testing.T) {
	needGit(t)
	const head = "Fault: wrong\nTest: ./sum TestSum\n"
	for _, v := range []struct {
		name, patch string
		want        string // in the printed line; "" means killed
	}{
		{"failure", sumPatch(head, "sum += n", "sum = n"), ""},
		{"subtest", sumPatch("Fault: wrong\nTest: ./sum TestSum/of_three\n", "sum += n", "sum -= n"), ""},
		{"panic", sumPatch(head, "sum += n", "panic(n)"), ""},
		{"hangs", sumPatch(head+"Timeout: 1s\n", "sum += n", "for n > 0 {}"), ""},
		{"equivalent", sumPatch(head, "sum += n", "sum = n + sum"), "it SURVIVES ./sum TestSum"},
		{"one of two", sumPatch(head+"Test: ./sum TestNothing\n", "sum += n", "sum = n"), "it SURVIVES ./sum TestNothing"},
		{"other", sumPatch(head, "sum *= n", "sum -= n"), "no longer applies"},
		{"broken", sumPatch(head, "sum += n", "sum += m"), "does not compile"},
		{"skips", sumPatch("Fault: wrong\nTest: ./sum TestSkipped\n", "sum += n", "sum = n"), "TestSkipped does not exist or was skipped"},
		{"no test", sumPatch("Fault: wrong\nTest: ./sum TestSu\n", "sum += n", "sum = n"), "TestSu does not exist or was skipped"},
		{"fails by chance", sumPatch("Fault: wrong\nTest: ./sum TestTwiceFails\nTimes: 2\n", "sum += n", "sum = n"), "fails on the unchanged tree"},
		{"passes once", sumPatch("Fault: wrong\nTest: ./sum TestTwiceFails\n", "sum += n", "sum = n"), "it SURVIVES ./sum TestTwiceFails"},
		{"fails anyway", sumPatch("Fault: wrong\nTest: ./sum TestFails\n", "sum += n", "sum = n"), "fails on the unchanged tree"},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for name, contents := range files {
				write(t, filepath.Join(root, name), contents)
			}
			write(t, filepath.Join(root, "fault.patch"), v.patch)
			mutants, err := load(root, regexp.MustCompile("fault"))
			require.NoError(t, err)
			var out bytes.Buffer
			err = newLab(root, t.TempDir(), &out).try(t.Context(), mutants, 2)
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if v.want == "" {
				assert.NoError(t, err)
				assert.Regexp(t, `^ *[0-9.]+ s  fault: wrong: killed$`, lines[0])
				assert.Regexp(t, "^1 of 1 mutants killed in", lines[len(lines)-1])
			} else {
				assert.EqualError(t, err, "not killed: fault")
				assert.Contains(t, out.String(), "fault: wrong: NOT KILLED: ")
				assert.Contains(t, out.String(), v.want)
				assert.Regexp(t, "^0 of 1 mutants killed in", lines[len(lines)-1])
			}
			unchanged, err := os.ReadFile(filepath.Join(root, "sum", "sum.go"))
			require.NoError(t, err)
			assert.Equal(t, files["sum/sum.go"], string(unchanged))
		})
	}
}

func write(t *testing.T, path, contents string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(contents), 0o600))
}

// TestHeads tests valid and invalid headers.
func TestHeads(t *testing.T) {
	const change = "\n--- a/x.go\n+++ b/x.go\n"
	for head, want := range map[string]string{
		"Fault: wrong\nTest: ./a TestA\n":                "",
		"Test: ./a TestA\n":                              "no Fault",
		"Fault: wrong\n":                                 "no Test",
		"Fault: wrong\nTest: TestA\n":                    `"Test: TestA": want a package and a test, as in ./credits TestMustUpdate`,
		"Fault: wrong\nTest: ./a TestA\nTimeout: soon\n": `time: invalid duration "soon"`,
		"Fault: wrong\nTest: ./a TestA\nTimes: often\n":  `strconv.Atoi: parsing "often": invalid syntax`,
		"Fault: wrong\nTest: ./a TestA\nRase: yes\n":     `"Rase: yes": unknown key in the header`,
	} {
		path := filepath.Join(t.TempDir(), "x.patch")
		write(t, path, head+change)
		_, err := read(path)
		if want == "" {
			assert.NoError(t, err)
		} else {
			assert.EqualError(t, err, want)
		}
	}
	path := filepath.Join(t.TempDir(), "x.patch")
	write(t, path, "Fault: wrong\nTest: ./a TestA/b c\nTest: ./d TestD\nTimeout: 3s\nRace: yes\nTimes: 7\n"+change+change)
	m, err := read(path)
	require.NoError(t, err)
	assert.Equal(t, []test{{"./a", "TestA/b c"}, {"./d", "TestD"}}, m.tests)
	assert.Equal(t, "^TestA$/^b c$", m.tests[0].pattern())
	assert.Equal(t, 3*time.Second, m.timeout)
	assert.True(t, m.race)
	assert.Equal(t, 7, m.times)
	assert.Equal(t, []string{"x.go", "x.go"}, m.files)
	_, err = load(t.TempDir(), regexp.MustCompile("x"))
	assert.ErrorContains(t, err, `matches "x"`)
}
