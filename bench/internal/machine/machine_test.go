package machine

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLineIsMeasuredRepeatedly(t *testing.T) {
	line := NewLine()
	if line == nil {
		t.Skip("missing: Linux and two processors")
	}
	defer line.Close()
	for range 3 {
		trip := line.RoundTrip()
		require.Greater(t, trip, 10*time.Nanosecond) // less is impossible between two sockets
		require.Less(t, trip, 10*time.Millisecond)
	}
}

func TestBusyCountsThisProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("missing: Linux")
	}
	before, err := Busy()
	require.NoError(t, err)
	for start := time.Now(); time.Since(start) < 200*time.Millisecond; {
	}
	after, err := Busy()
	require.NoError(t, err)
	require.Greater(t, after-before, 100*time.Millisecond)
}
