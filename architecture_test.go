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

// A room is a package together with the packages inside it that are not rooms
// of their own.
type room struct {
	imports []string // rooms that it stands above and uses
	tests   []string // further rooms that its tests use
}

// house is every room there is. A room imports only what is listed before it,
// which makes the imports run downward.
var house = []struct {
	name string
	room
}{
	{"wire", room{}},
	{"rdma", room{}},
	{"internal/bubble", room{}},
	{"internal/sysfile", room{}},
	{"internal/cgroup", room{imports: []string{"internal/sysfile"}}},
	{"internal/budget", room{imports: []string{"internal/cgroup"}}},
	{"internal/interrupt", room{}},
	{"internal/localpeer", room{}},
	{"internal/rnics", room{}},
	{"internal/spin", room{imports: []string{"internal/cgroup"}}},
	{"internal/handover", room{imports: []string{"rdma"}}},
	{"credits", room{}},
	{"rdma/rdmatest", room{imports: []string{"rdma"}}},
	{"rdma/iwarp", room{imports: []string{"rdma", "internal/spin"}, tests: []string{"rdma/rdmatest"}}},
	{"rdma/shm", room{imports: []string{"rdma", "internal/bubble", "internal/budget", "internal/interrupt", "internal/spin", "internal/sysfile"}, tests: []string{"rdma/rdmatest"}}},
	{"rdma/verbs", room{imports: []string{"rdma", "internal/handover", "internal/spin"}, tests: []string{"rdma/rdmatest"}}},
	{"bcopy", room{imports: []string{"wire"}}},
	{"zcopy", room{imports: []string{"wire"}}},
	{"internal/session", room{imports: []string{"wire", "rdma", "credits", "bcopy", "zcopy"}}},
	{"listener", room{imports: []string{"wire", "rdma", "internal/interrupt", "internal/localpeer", "internal/spin", "internal/sysfile", "rdma/iwarp"}}},
	{"sdp", room{
		imports: []string{
			"wire", "rdma", "internal/bubble", "internal/budget", "internal/interrupt", "internal/localpeer", "internal/rnics", "internal/session",
			"rdma/iwarp", "rdma/shm", "bcopy", "zcopy", "listener",
		},
		tests: []string{"rdma/rdmatest", "rdma/verbs"},
	}},
	{"test/group", room{}},
	{"test/mutants", room{}},
	{"test/repeat", room{imports: []string{"test/group"}}},
	{"test/dissect", room{tests: []string{"wire", "rdma", "rdma/iwarp", "sdp"}}},
	{"test/sim", room{tests: []string{"wire", "bcopy", "zcopy", "internal/session"}}},
	{"test/traffic", room{}},
	{"test/soak", room{imports: []string{"sdp", "test/traffic"}}},
	{"test/scale", room{imports: []string{"sdp", "test/traffic"}}},
	{"test/faults", room{tests: []string{"rdma/verbs", "sdp", "test/traffic"}}},
	{"test/strangers", room{tests: []string{"sdp"}}},
	{"test/swap", room{imports: []string{"sdp"}}},
	{"test/parity", room{tests: []string{"sdp"}}},
	{"test/cost", room{tests: []string{"sdp"}}},
	{"test/lab", room{imports: []string{"test/group"}, tests: []string{"rdma", "rdma/iwarp", "rdma/verbs", "sdp"}}},
}

// needs are the modules that the library may import, and testNeeds those that
// its tests may besides.
var (
	needs     = []string{"golang.org/x/sys"}
	testNeeds = []string{"github.com/stretchr/testify", "go.uber.org/goleak", "golang.org/x/net/nettest"}
)

func TestHouseHasNoStairsUp(t *testing.T) {
	var below []string
	for _, h := range house {
		require.Subset(t, below, h.imports, "%s imports what is not listed before it", h.name)
		below = append(below, h.name)
	}
}

func TestImportsRunDownward(t *testing.T) {
	eachFile(t, func(file string, imports []string) {
		name, room := roomOf(path.Dir(file))
		require.NotEmpty(t, name, "%s is in no room; add it to the house", file)
		allowed := append([]string{name}, room.imports...)
		if isTest(file) {
			allowed = append(allowed, room.tests...)
		}
		for _, imported := range imports {
			inside, ours := strings.CutPrefix(imported, module+"/")
			if !ours {
				continue
			}
			if target, _ := roomOf(inside); !slices.Contains(allowed, target) {
				t.Errorf("%s imports %s; %s may import %v", file, inside, name, room.imports)
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

// roomOf finds the innermost room that dir is in.
func roomOf(dir string) (name string, in room) {
	for _, h := range house {
		if within(dir, h.name) && len(h.name) > len(name) {
			name, in = h.name, h.room
		}
	}
	return name, in
}

// within tells whether a path is the parent or below it.
func within(p, parent string) bool {
	return p == parent || strings.HasPrefix(p, parent+"/")
}
