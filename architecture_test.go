// Package gosdp_test holds the module to its architecture: which package may
// import which, and what of other modules any of them may need.
package gosdp_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/gosdp/gosdp"

// allowed lists what a package may import. It also holds for packages below it that are not
// listed themselves.
type allowed struct {
	imports []string // of this module
	tests   []string // further ones, in its tests
}

// layers lists every package. A package imports only packages that are listed before it, so
// there are no cycles between layers.
var layers = []struct {
	name string
	allowed
}{
	{"wire", allowed{}},
	{"rdma", allowed{}},
	{"internal/bubble", allowed{}},
	{"internal/sysfile", allowed{}},
	{"internal/cgroup", allowed{imports: []string{"internal/sysfile"}}},
	{"internal/budget", allowed{imports: []string{"internal/cgroup"}}},
	{"internal/interrupt", allowed{}},
	{"internal/localpeer", allowed{}},
	{"internal/rnics", allowed{}},
	{"internal/shmdir", allowed{imports: []string{"internal/bubble", "internal/sysfile"}}},
	{"internal/spin", allowed{imports: []string{"internal/cgroup"}}},
	{"internal/handover", allowed{imports: []string{"rdma"}}},
	{"credits", allowed{}},
	{"rdma/rdmatest", allowed{imports: []string{"rdma"}}},
	{"rdma/iwarp", allowed{imports: []string{"rdma", "internal/spin"}, tests: []string{"rdma/rdmatest"}}},
	{"rdma/shm", allowed{imports: []string{"rdma", "internal/bubble", "internal/budget", "internal/interrupt", "internal/shmdir", "internal/spin", "internal/sysfile"}, tests: []string{"rdma/rdmatest"}}},
	{"rdma/verbs", allowed{imports: []string{"rdma", "internal/handover", "internal/spin"}, tests: []string{"rdma/rdmatest"}}},
	{"bcopy", allowed{imports: []string{"wire"}}},
	{"zcopy", allowed{imports: []string{"wire"}}},
	{"internal/session", allowed{imports: []string{"wire", "rdma", "credits", "bcopy", "zcopy"}}},
	{"listener", allowed{imports: []string{"wire", "rdma", "internal/interrupt", "internal/localpeer", "internal/shmdir", "internal/spin", "internal/sysfile", "rdma/iwarp"}}},
	{"sdp", allowed{
		imports: []string{
			"wire", "rdma", "internal/bubble", "internal/budget", "internal/interrupt", "internal/localpeer", "internal/rnics", "internal/session", "internal/shmdir",
			"rdma/iwarp", "rdma/shm", "bcopy", "zcopy", "listener",
		},
		tests: []string{"rdma/rdmatest", "rdma/verbs"},
	}},
	{"test/group", allowed{}},
	{"test/mutants", allowed{}},
	{"test/repeat", allowed{imports: []string{"test/group"}}},
	{"test/dissect", allowed{tests: []string{"wire", "rdma", "rdma/iwarp", "sdp"}}},
	{"test/sim", allowed{tests: []string{"wire", "bcopy", "zcopy", "internal/session"}}},
	{"test/traffic", allowed{}},
	{"test/soak", allowed{imports: []string{"sdp", "test/traffic"}}},
	{"test/scale", allowed{imports: []string{"sdp", "test/traffic"}}},
	{"test/faults", allowed{tests: []string{"rdma/verbs", "sdp", "test/traffic"}}},
	{"test/containers", allowed{tests: []string{"internal/shmdir", "sdp"}}},
	{"test/strangers", allowed{tests: []string{"sdp"}}},
	{"test/swap", allowed{imports: []string{"sdp"}}},
	{"test/parity", allowed{tests: []string{"sdp"}}},
	{"test/cost", allowed{tests: []string{"sdp"}}},
	{"test/lab", allowed{imports: []string{"test/group"}, tests: []string{"rdma", "rdma/iwarp", "rdma/verbs", "sdp"}}},
}

// needs are the modules that the library may import, and testNeeds those that
// its tests may besides.
var (
	needs     = []string{"golang.org/x/sys"}
	testNeeds = []string{"github.com/stretchr/testify", "go.uber.org/goleak", "golang.org/x/net/nettest"}
)

func TestLayersAreInOrder(t *testing.T) {
	var below []string
	for _, h := range layers {
		require.Subset(t, below, h.imports, "%s imports what is not listed before it", h.name)
		below = append(below, h.name)
	}
}

func TestImportsRunDownward(t *testing.T) {
	eachFile(t, func(file string, imports []string) {
		name, may := packageOf(path.Dir(file))
		require.NotEmpty(t, name, "%s is in a package that layers does not list", file)
		targets := append([]string{name}, may.imports...)
		if isTest(file) {
			targets = append(targets, may.tests...)
		}
		for _, imported := range imports {
			inside, ours := strings.CutPrefix(imported, module+"/")
			if !ours {
				continue
			}
			if target, _ := packageOf(inside); !slices.Contains(targets, target) {
				t.Errorf("%s imports %s; %s may import %v", file, inside, name, may.imports)
			}
		}
	})
}

func TestLibraryNeedsNothingButSys(t *testing.T) {
	eachFile(t, func(file string, imports []string) {
		allowed := needs
		if isTest(file) || strings.HasPrefix(file, "rdma/rdmatest/") {
			allowed = slices.Concat(needs, testNeeds)
		}
		for _, imported := range imports {
			standard := !strings.Contains(strings.Split(imported, "/")[0], ".")
			if standard || within(imported, module) {
				continue
			}
			if !slices.ContainsFunc(allowed, func(need string) bool { return within(imported, need) }) {
				t.Errorf("%s imports %s", file, imported)
			}
		}
	})
}

// eachFile calls check with every Go file of the module below its root, for
// whatever system it is, and what it imports.
func eachFile(t *testing.T, check func(file string, imports []string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if file != "." && (strings.HasPrefix(entry.Name(), ".") || isModule(file)) {
				return filepath.SkipDir
			}
			return nil
		case filepath.Ext(file) != ".go" || filepath.Dir(file) == ".":
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		var imports []string
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			imports = append(imports, imported)
		}
		check(filepath.ToSlash(file), imports)
		return nil
	})
	require.NoError(t, err)
}

// isModule tells whether dir is the root of another module.
func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func isTest(file string) bool { return strings.HasSuffix(file, "_test.go") }

// packageOf returns the longest listed name that dir is in, and what it may import.
func packageOf(dir string) (name string, may allowed) {
	for _, h := range layers {
		if within(dir, h.name) && len(h.name) > len(name) {
			name, may = h.name, h.allowed
		}
	}
	return name, may
}

// within tells whether a path is the parent or below it.
func within(p, parent string) bool {
	return p == parent || strings.HasPrefix(p, parent+"/")
}
