package policy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/rules"
)

// setRules lets a file with this text be the operator's until the test ends.
func setRules(t *testing.T, text string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "sdp.conf")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	t.Setenv(configVariable, name)
	ReadRulesAgain()
	t.Cleanup(ReadRulesAgain)
}

func TestPrivilegedProgramsIgnoreTheRules(t *testing.T) {
	setRules(t, "use tcp client * *:*")
	was := Privileged
	defer func() { Privileged = was }()
	Privileged = func() bool { return true }
	assert.Nil(t, readRules())
	Privileged = was
	assert.NotNil(t, readRules())
}

// TestRulesFileIsReadOnce: what changes in it, or in the variable, has no effect on the process.
func TestRulesFileIsReadOnce(t *testing.T) {
	setRules(t, "use tcp client * *:*")
	first := operator()
	require.NoError(t, os.Remove(os.Getenv(configVariable)))
	t.Setenv(configVariable, "")
	assert.Same(t, first, operator())
	require.NotNil(t, first.set)
}

// BenchmarkNoRules is what a Dial pays for rules if there are none.
func BenchmarkNoRules(b *testing.B) {
	n, _ := ParseNetwork("tcp")
	b.ReportAllocs()
	for b.Loop() {
		if ruled, known := (*Options)(nil).Ruled(n, rules.Client, "127.0.0.1:80"); ruled.Rule != nil || !known {
			b.Fatal("there is a rule")
		}
	}
}
