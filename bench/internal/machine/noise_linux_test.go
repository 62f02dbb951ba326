package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBusyLeavesOutIdleAndInterrupts(t *testing.T) {
	busy, err := parseBusy([]byte("cpu  100 20 3 40000 5000 600000 7000000 4 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"))
	require.NoError(t, err)
	require.Equal(t, 1270*time.Millisecond, busy)
	_, err = parseBusy([]byte("cpu one two\n"))
	require.Error(t, err)
}
