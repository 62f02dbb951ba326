package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

func TestEveryKindHasAHeadline(t *testing.T) {
	for _, c := range harness.Quick {
		require.Contains(t, headline, c.Kind)
	}
}
