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
		require.Positive(t, line.RoundTrip())
	}
}

func TestBusyCountsThisProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("missing: Linux")
	}
	before, err := Busy()
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		for start := time.Now(); time.Since(start) < 10*time.Millisecond; {
		}
		after, err := Busy()
		return err == nil && after-before > 100*time.Millisecond
	}, time.Minute, time.Millisecond)
}
