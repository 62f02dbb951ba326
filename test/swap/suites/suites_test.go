package suites

import (
	_ "embed"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const variable = "GOSDP_SUITES"

// suite is a set of packages of a module.
type suite struct {
	name     string
	module   string
	packages []string
}

var suites = []suite{
	{"xnet", "golang.org/x/net@v0.62.0", []string{"./http2", "./http2/h2c", "./netutil", "./websocket"}},
	{"grpc", "google.golang.org/grpc@v1.85.0", []string{"./test", "./internal/transport"}},
}

// stack is what connections run over.
type stack struct {
	name    string // of the device
	devices string // for SDP_DEVICES
}

var (
	plain  = stack{"tcp", "tcp"}
	stacks = []stack{
		{"shm", "shm,iwarp"}, // every connection begins as one of iwarp
		{"iwarp", "iwarp"},
	}
)

//go:embed known.json
var knownText []byte

// chosen reports whether the environment variable selects a suite.
func chosen(name string) bool {
	value := os.Getenv(variable)
	return value == "1" || slices.Contains(strings.Split(value, ","), name)
}

func TestSuites(t *testing.T) {
	if os.Getenv(variable) == "" {
		t.Skipf("missing: %s, because this takes many minutes and downloads modules; %[1]s=1 runs all suites, %[1]s=xnet only that one", variable)
	}
	for _, name := range strings.Split(os.Getenv(variable), ",") {
		known := slices.ContainsFunc(suites, func(s suite) bool { return s.name == name })
		require.True(t, known || name == "1", "%s: no suite %s", variable, name)
	}
	known, err := readKnown(knownText)
	require.NoError(t, err)
	swap := build(t)
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) {
			if !chosen(s.name) {
				t.Skipf("missing: its name in %s=%s", variable, os.Getenv(variable))
			}
			r := newRunner(t, swap, s)
			base := r.baseline(t)
			for _, on := range stacks {
				t.Run(on.name, func(t *testing.T) {
					t.Parallel() // the tests of a suite mostly wait
					compare(t, r, base, on, known)
				})
			}
		})
	}
}

// compare runs a suite on a device. It fails t for each difference from base that is not known,
// and for each known one that no longer occurs.
func compare(t *testing.T, r *runner, base *results, on stack, known []difference) {
	start := time.Now()
	known = knownFor(known, r.suite.name, on.name)
	got := r.runOn(t, on, base, known)
	r.log(t, on, got, time.Since(start))
	unknown, gone := judge(base, got, known)
	missing := make(map[string]int)
	for _, id := range unknown {
		if base.outcome(id) == passed && got.outcome(id) == absent {
			missing[id.Package]++
			continue
		}
		t.Errorf("%s %s over tcp; over %s it %s:\n%s", id, base.outcome(id), on.name, got.outcome(id), got.tests[id].tail())
	}
	for pkg, n := range missing {
		t.Errorf("%s: %d tests that pass over tcp do not run over %s", pkg, n, on.name)
	}
	for _, d := range gone {
		t.Errorf("%s passes over %s now; remove it from known.json", d.id(), on.name)
	}
	require.NotZero(t, r.connections(t, on), "connections over %s", on.name)
}

// difference is a known difference.
type difference struct {
	Suite   string
	Stacks  []string
	Package string
	Test    string
	Reason  string
}

func (d difference) id() id { return id{d.Package, d.Test} }

func readKnown(text []byte) ([]difference, error) {
	var known []difference
	err := json.Unmarshal(text, &known)
	return known, err
}

// knownFor returns the known differences of a suite on a stack.
func knownFor(known []difference, suite, stack string) []difference {
	return slices.DeleteFunc(slices.Clone(known), func(d difference) bool {
		return d.Suite != suite || !slices.Contains(d.Stacks, stack)
	})
}
