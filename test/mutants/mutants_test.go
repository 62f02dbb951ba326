package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// most limits the number of faults. Each of them must follow changes to the library.
const most = 100

// TestFaultsApply: after a change to the library or its tests, it tells which lists to adapt.
func TestFaultsApply(t *testing.T) {
	all, err := load(".")
	require.NoError(t, err)
	assert.LessOrEqual(t, len(all), most)
	seen := make(map[string]bool)
	root := filepath.Join("..", "..")
	for _, m := range all {
		assert.False(t, seen[m.name], "two faults have the name %s", m.name)
		seen[m.name] = true
		_, err := m.apply(root)
		assert.NoError(t, err, m.name)
		top, _, _ := strings.Cut(m.test, "/")
		assert.True(t, defines(t, filepath.Join(root, m.pkg), top), "%s: %s has no %s", m.name, m.pkg, top)
	}
}

// defines reports whether a test file in dir defines a function.
func defines(t *testing.T, dir, function string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	definition := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(function) + `\(`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if definition.Match(text) {
			return true
		}
	}
	return false
}

func TestParse(t *testing.T) {
	all, err := parse("# comment\n\none: a fault\nfile f.go\ntest ./p TestA/b c\n-old\n-\tline\n+new\n-\n+x\n+\ty\n\n" +
		"two: another\nfile g.go\ntest . TestB\n-gone\n")
	require.NoError(t, err)
	require.Equal(t, []*mutant{
		{"one", "a fault", "f.go", "./p", "TestA/b c", []edit{{"old\n\tline", "new"}, {"", "x\n\ty"}}},
		{"two", "another", "g.go", ".", "TestB", []edit{{"gone", ""}}},
	}, all)
	for _, wrong := range []string{"nonsense", "a: b\nfile f\ntest ./p TestA", "a: b\ntest ./p TestA\n-x", "+x", "file f\ntest ./p T\n-x"} {
		_, err := parse(wrong)
		require.Error(t, err, wrong)
	}
}

func TestApply(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "f.go"), []byte("one two two\n"), 0o600))
	text, err := (&mutant{file: "f.go", edits: []edit{{"one ", ""}, {"two two", "three"}}}).apply(root)
	require.NoError(t, err)
	require.Equal(t, "three\n", text)
	for _, before := range []string{"two", "four"} {
		_, err = (&mutant{file: "f.go", edits: []edit{{before, "x"}}}).apply(root)
		require.ErrorContains(t, err, "instead of once")
	}
}

// TestKilled tries faults in a module of its own: one that its test notices, one that survives, one
// that does not compile, and one whose test does not exist.
func TestKilled(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.25\n",
		"m.go":   "package m\n\nfunc two() int { return 2 }\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestTwo(t *testing.T) {\n\tif two() != 2 {\n\t\tt.Fatal()\n\t}\n}\n\n" +
			"func TestNothing(t *testing.T) {}\n",
	} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	killed := func(test, after string) error {
		return (&mutant{name: "m", file: "m.go", pkg: ".", test: test, edits: []edit{{"return 2", after}}}).killed(t.Context(), t.TempDir())
	}
	require.NoError(t, killed("TestTwo", "return 3"))
	require.ErrorContains(t, killed("TestNothing", "return 3"), "it survives")
	require.ErrorContains(t, killed("TestTwo", "return nil"), "did not run")
	require.ErrorContains(t, killed("TestThree", "return 3"), "does not pass without the fault")
}
