package sdp

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/policy"
)

// TestSettingsOfTheHandshake: it gets what the program has configured.
func TestSettingsOfTheHandshake(t *testing.T) {
	for _, v := range []struct {
		config *Config
		ttl    time.Duration
		proxy  bool
	}{
		{nil, time.Minute, false},
		{&Config{PlainTTL: 3 * time.Hour}, 3 * time.Hour, false},
		{&Config{StepUpThroughProxies: true}, time.Minute, true},
	} {
		set, err := v.config.settings(policy.TCP, false)
		require.NoError(t, err)
		assert.Equal(t, v.ttl, set.handshake.PlainTTL)
		assert.Equal(t, v.proxy, set.handshake.ThroughProxies)
	}
}

// elsewhere has, for each field of Config, where else it can be set: in a variable of the environment, and by a
// statement of the rules. A new field needs a row, a doc comment that names these and the default, and what the pages say.
var elsewhere = map[string]struct{ variable, statement string }{
	"Devices":              {devicesVariable, "use"},
	"Probe":                {peersVariable, ""},
	"ReplyTimeout":         {},
	"HandshakeTimeout":     {handshakeVariable, ""},
	"StepUpTimeout":        {},
	"StepUpThroughProxies": {},
	"PeerUIDs":             {usersVariable, "share"},
	"ShmDir":               {shmDirVariable, ""},
	"PlainTTL":             {},
	"CRC":                  {},
	"ZCopyThreshold":       {thresholdVariable, ""},
	"ReadBuffer":           {},
	"BusyPoll":             {busyPollVariable, ""},
	"Logger":               {},
}

// TestFieldsOfConfigAreDescribed in their comments and on the pages, with the variables and statements that set the same.
func TestFieldsOfConfigAreDescribed(t *testing.T) {
	page := func(name string) string {
		b, err := os.ReadFile("../docs/" + name)
		require.NoError(t, err)
		return string(b)
	}
	operations, rules := page("operations.md"), page("rules.md")
	comments := commentsOf(t, "config.go", "Config")
	var set []string
	of := reflect.TypeFor[Config]()
	for i := range of.NumField() {
		field := of.Field(i)
		ways, ok := elsewhere[field.Name]
		require.True(t, ok, "%s has no row", field.Name)
		comment := comments[field.Name]
		if field.Type.Kind() != reflect.Bool { // whose default is false
			assert.Regexp(t, `default|0 means`, comment, field.Name)
		}
		if ways.variable != "" {
			set = append(set, ways.variable)
			assert.Contains(t, comment, ways.variable, field.Name)
			assert.Contains(t, operations, "\n| `"+ways.variable+"` |", field.Name)
		}
		if ways.statement != "" {
			assert.Contains(t, comment, `"`+ways.statement+`"`, field.Name)
			assert.Contains(t, rules, "\n"+ways.statement+" ", field.Name)
			assert.Contains(t, rules, "`Config."+field.Name+"`", "it goes before the rules")
		}
	}
	assert.Len(t, elsewhere, of.NumField(), "a row is of no field")
	// Those of the rules, and of the process.
	set = append(set, configVariable, memoryVariable, policy.StatusVariable, policy.DumpVariable)
	slices.Sort(set)
	all := slices.Clone(policy.Variables)
	slices.Sort(all)
	assert.Equal(t, all, set, "a variable is of no field")
}

// commentsOf returns the comments of a struct's fields.
func commentsOf(t *testing.T, file, name string) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	require.NoError(t, err)
	comments := make(map[string]string)
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.Name == name {
			for _, field := range spec.Type.(*ast.StructType).Fields.List {
				for _, n := range field.Names {
					comments[n.Name] = strings.Join(strings.Fields(field.Doc.Text()), " ")
				}
			}
		}
		return true
	})
	return comments
}
