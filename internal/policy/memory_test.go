package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/internal/budget"
)

func TestMemoryVariable(t *testing.T) {
	for _, text := range []string{"much", "0", "1", "63K", "-1", "1.5G", "8T"} {
		t.Setenv(memoryVariable, text)
		_, err := New(nil, TCP, false)
		assert.ErrorContains(t, err, "SDP_MEMORY="+text)
	}
	limit := func() int64 {
		_, err := New(nil, TCP, false)
		require.NoError(t, err)
		return budget.Process.Limit()
	}
	t.Setenv(memoryVariable, "32m")
	assert.EqualValues(t, 32<<20, limit())
	t.Setenv(memoryVariable, "")
	assert.Equal(t, budget.Default(), limit())
}

// TestSetMemoryLimit: the program goes before the environment, also if that changes.
func TestSetMemoryLimit(t *testing.T) {
	t.Setenv(memoryVariable, "32m")
	defer SetMemoryLimit(0)
	assert.EqualValues(t, 32<<20, SetMemoryLimit(20<<20), "the variable's, before the first Dial")
	assert.EqualValues(t, 20<<20, budget.Process.Limit())
	t.Setenv(memoryVariable, "48m")
	_, err := New(nil, TCP, false)
	require.NoError(t, err)
	assert.EqualValues(t, 20<<20, budget.Process.Limit())
	assert.EqualValues(t, 20<<20, SetMemoryLimit(-1), "a negative limit is only a question")
	assert.EqualValues(t, 20<<20, SetMemoryLimit(30<<20))
	assert.EqualValues(t, 30<<20, SetMemoryLimit(0))
	assert.EqualValues(t, 48<<20, budget.Process.Limit(), "the variable's again")
	t.Setenv(memoryVariable, "much")
	SetMemoryLimit(20 << 20)
	_, err = New(nil, TCP, false)
	assert.ErrorContains(t, err, "SDP_MEMORY=much", "a mistake is found, though the program has said")
	SetMemoryLimit(0)
	assert.Equal(t, budget.Default(), budget.Process.Limit(), "and does not leave what the program has taken back")
	t.Setenv(memoryVariable, "")
}
