// Package gosdp_test checks the architecture of the module: which packages each package may
// import, and which other modules the library may depend on.
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

// allowed lists what a package may import. It also applies to packages below it that are not
// listed themselves.
type allowed struct {
	imports []string // of this module
	tests   []string // of this module, additionally in its tests
}

// layers lists every package. A package imports only packages that are listed before it, so
// there are no cycles between layers.
var layers = []struct {
	name string
	allowed
}{
	{"test/watchdog", allowed{}},
	{"test/netns", allowed{}},
	{"wire", allowed{tests: []string{"test/watchdog"}}},
	{"rdma", allowed{}},
	{"sdp/stats", allowed{}},
	{"internal/netname", allowed{}},
	{"internal/adopted", allowed{}},
	{"internal/lockorder", allowed{}},
	{"internal/timing", allowed{}},
	{"internal/bubble", allowed{}},
	{"internal/sysfile", allowed{}},
	{"internal/cgroup", allowed{imports: []string{"internal/sysfile"}}},
	{"internal/budget", allowed{imports: []string{"internal/cgroup"}}},
	{"test/conntest", allowed{imports: []string{"internal/budget"}}},
	{"internal/interrupt", allowed{}},
	{"internal/limits", allowed{imports: []string{"internal/bubble", "internal/sysfile"}}},
	{"internal/rnics", allowed{}},
	{"internal/spin", allowed{imports: []string{"internal/cgroup", "internal/lockorder"}}},
	{"internal/handover", allowed{imports: []string{"rdma"}}},
	{"internal/events", allowed{}},
	{"internal/fault", allowed{}},
	{"internal/gate", allowed{}},
	{"internal/shm", allowed{imports: []string{"internal/gate", "internal/lockorder", "internal/spin"}}},
	{"internal/meeting", allowed{imports: []string{"internal/shm"}, tests: []string{"test/watchdog"}}},
	{"internal/ticker", allowed{imports: []string{"internal/bubble"}}},
	{"internal/trigger", allowed{imports: []string{"internal/timing"}}},
	{"internal/units", allowed{}},
	{"internal/stream", allowed{imports: []string{"internal/fault", "internal/gate", "internal/lockorder", "internal/meeting", "internal/shm", "internal/spin", "internal/ticker", "internal/timing", "internal/trigger"}, tests: []string{"test/watchdog"}}},
	{"internal/rules", allowed{tests: []string{"test/watchdog"}}},
	{"internal/dump", allowed{imports: []string{"internal/units"}, tests: []string{"test/watchdog"}}},
	{"internal/status", allowed{tests: []string{"test/watchdog"}}},
	{"credits", allowed{}},
	{"rdma/rdmatest", allowed{imports: []string{"rdma"}}},
	{"rdma/internal/rnic", allowed{imports: []string{"internal/bubble"}}},
	{"rdma/iwarp/internal/nic", allowed{imports: []string{"rdma", "internal/bubble", "internal/lockorder"}}},
	{"rdma/iwarp/mpa", allowed{imports: []string{"rdma"}, tests: []string{"test/watchdog"}}},
	{"rdma/iwarp", allowed{imports: []string{"rdma", "internal/bubble", "internal/lockorder", "internal/spin", "rdma/internal/rnic", "rdma/iwarp/internal/nic", "rdma/iwarp/mpa"}, tests: []string{"rdma/rdmatest", "test/watchdog"}}},
	{"rdma/verbs", allowed{imports: []string{"rdma", "internal/budget", "internal/handover", "internal/rnics", "internal/spin", "rdma/internal/rnic"}, tests: []string{"rdma/rdmatest"}}},
	{"bcopy", allowed{imports: []string{"wire"}}},
	{"zcopy", allowed{imports: []string{"wire"}}},
	{"internal/session", allowed{imports: []string{"wire", "rdma", "credits", "bcopy", "zcopy"}}},
	{"internal/handshake", allowed{imports: []string{"wire", "rdma", "internal/adopted", "internal/bubble", "internal/events", "internal/interrupt", "internal/sysfile", "internal/timing", "rdma/iwarp", "rdma/iwarp/mpa"}}},
	{"internal/policy", allowed{
		imports: []string{"wire", "rdma", "internal/budget", "internal/events", "internal/handshake", "internal/meeting", "internal/netname", "internal/rnics", "internal/rules", "internal/timing", "internal/units", "rdma/iwarp"},
	}},
	{"internal/observe", allowed{imports: []string{"wire", "rdma", "internal/bubble", "internal/budget", "internal/dump", "internal/events", "internal/handshake", "internal/lockorder", "internal/policy", "internal/status", "sdp/stats"}}},
	{"internal/engine", allowed{
		imports: []string{
			"wire", "rdma", "bcopy", "internal/bubble", "internal/budget", "internal/dump", "internal/fault", "internal/handshake", "internal/lockorder", "internal/netname", "internal/observe", "internal/session", "internal/ticker", "sdp/stats",
		},
		tests: []string{"internal/units", "rdma/iwarp", "rdma/iwarp/mpa", "rdma/rdmatest", "listener", "test/conntest", "test/watchdog", "zcopy"},
	}},
	{"internal/local", allowed{
		imports: []string{
			"internal/bubble", "internal/budget", "internal/dump", "internal/limits", "internal/meeting", "internal/netname", "internal/observe", "internal/policy", "internal/rules", "internal/stream", "internal/timing", "internal/trigger", "sdp/stats",
		},
	}},
	{"listener", allowed{
		imports: []string{"internal/bubble", "internal/handshake", "internal/timing"},
		tests:   []string{"wire", "rdma", "rdma/iwarp", "rdma/iwarp/mpa"},
	}},
	{"sdp", allowed{
		imports: []string{
			"wire", "internal/adopted", "internal/bubble", "internal/engine", "internal/handshake", "internal/local", "internal/netname", "internal/observe", "internal/policy", "internal/rules", "listener", "sdp/stats",
		},
		tests: []string{"internal/dump", "internal/meeting", "internal/status", "internal/stream", "test/conntest", "test/watchdog"},
	}},
	{"sdp/debug", allowed{imports: []string{"sdp"}, tests: []string{"internal/meeting"}}},
	{"internal/proxy", allowed{imports: []string{"internal/units", "sdp", "sdp/stats"}, tests: []string{"internal/meeting", "test/watchdog"}}},
	{"internal/term", allowed{}},
	{"internal/diagnose", allowed{imports: []string{"wire", "internal/meeting", "internal/policy", "internal/rnics", "internal/rules", "rdma", "sdp"}}},
	{"internal/perf", allowed{imports: []string{"wire", "sdp"}, tests: []string{"internal/meeting", "test/watchdog"}}},
	{"internal/adopt", allowed{}},
	{"cmd/sdp", allowed{imports: []string{"internal/adopt", "internal/diagnose", "internal/dump", "internal/perf", "internal/proxy", "internal/rules", "internal/status", "internal/term", "internal/units", "rdma/verbs", "sdp", "sdp/debug"}, tests: []string{"rdma", "wire"}}},
	{"test/lab/group", allowed{}},
	{"test/mutants", allowed{}},
	{"test/dissect", allowed{tests: []string{"wire", "rdma", "rdma/iwarp", "rdma/iwarp/mpa", "sdp"}}},
	{"test/sim", allowed{tests: []string{"wire", "bcopy", "zcopy", "internal/session"}}},
	{"test/traffic", allowed{}},
	{"test/soak", allowed{imports: []string{"sdp", "test/traffic"}}},
	{"test/faults", allowed{tests: []string{"rdma/verbs", "sdp", "test/traffic"}}},
	{"test/containers", allowed{tests: []string{"sdp"}}},
	{"test/restart", allowed{tests: []string{"sdp"}}},
	{"test/strangers", allowed{tests: []string{"sdp"}}},
	{"test/adoption", allowed{}},
	{"test/parity", allowed{tests: []string{"sdp"}}},
	{"test/lab", allowed{imports: []string{"test/lab/group"}, tests: []string{"rdma", "rdma/iwarp", "rdma/iwarp/mpa", "rdma/verbs", "sdp"}}},
}

// needs are the modules that the library may import. testNeeds are those that its tests may
// import in addition.
var (
	needs     = []string{"golang.org/x/sys"}
	testNeeds = []string{"github.com/stretchr/testify", "go.uber.org/goleak", "golang.org/x/net/nettest"}
)

func TestLayersAreInOrder(t *testing.T) {
	var below []string
	for _, layer := range layers {
		require.Subset(t, below, layer.imports, "%s imports a package that is not listed before it", layer.name)
		below = append(below, layer.name)
	}
}

func TestImportsRunDownward(t *testing.T) {
	eachFile(t, func(file string, imports []string) {
		name, rules := packageOf(path.Dir(file))
		require.NotEmpty(t, name, "%s is in a package that layers does not list", file)
		targets := append([]string{name}, rules.imports...)
		if isTest(file) {
			targets = append(targets, rules.tests...)
		}
		for _, imported := range imports {
			inside, ours := strings.CutPrefix(imported, module+"/")
			if !ours {
				continue
			}
			if target, _ := packageOf(inside); !slices.Contains(targets, target) {
				t.Errorf("%s imports %s; %s may import %v", file, inside, name, rules.imports)
			}
		}
	})
}

func TestLibraryNeedsNothingButSys(t *testing.T) {
	eachFile(t, func(file string, imports []string) {
		allowed := needs
		if isTest(file) || strings.HasPrefix(file, "rdma/rdmatest/") || strings.HasPrefix(file, "internal/handshake/handshaketest/") || strings.HasPrefix(file, "test/conntest/") {
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

// eachFile calls check with every Go file of the module below its root, for all systems, and
// the packages that the file imports.
func eachFile(t *testing.T, check func(file string, imports []string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if file != "." && (strings.ContainsAny(entry.Name()[:1], "._") || isModule(file)) {
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

// isModule reports whether dir is the root of another module.
func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func isTest(file string) bool { return strings.HasSuffix(file, "_test.go") }

// packageOf returns the longest listed name that contains dir, and what it may import.
func packageOf(dir string) (name string, rules allowed) {
	for _, layer := range layers {
		if within(dir, layer.name) && len(layer.name) > len(name) {
			name, rules = layer.name, layer.allowed
		}
	}
	return name, rules
}

// within reports whether p is parent or below it.
func within(p, parent string) bool {
	return p == parent || strings.HasPrefix(p, parent+"/")
}
