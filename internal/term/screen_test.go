package term

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLongLinesAreCut: the terminal takes a line with wide characters as one line, until Leave.
func TestLongLinesAreCut(t *testing.T) {
	const wrap = "\x1b[?7"
	var b strings.Builder
	Enter(&b)
	require.Equal(t, 1, strings.Count(b.String(), wrap+"l"))
	Draw(&b, []string{strings.Repeat("漢", 80)})
	require.NotContains(t, b.String(), wrap+"h")
	Leave(&b)
	require.Equal(t, 1, strings.Count(b.String(), wrap+"h"))
}

// TestFullLinesStay: nothing is erased when the cursor may still be on a line's last character.
func TestFullLinesStay(t *testing.T) {
	var b strings.Builder
	Draw(&b, []string{"one", "two"})
	require.Equal(t, "\x1b[H\x1b[Kone\r\n\x1b[Jtwo", b.String())
}
