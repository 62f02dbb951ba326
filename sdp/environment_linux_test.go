package sdp

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFiltered compares what the kernel says to this process with what it says of it.
func TestFiltered(t *testing.T) {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, mode, found := strings.Cut(string(status), "\nSeccomp:")
	assert.Equal(t, found && !strings.HasPrefix(strings.TrimSpace(mode), "0"), filtered())
}
