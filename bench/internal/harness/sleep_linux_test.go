package harness

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestPausesAreOnTime: a thread has a slack of 1 ns during a pause, and its own afterwards.
func TestPausesAreOnTime(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to see another thread's slack")
	}
	thread, end, slack := make(chan int), make(chan bool), make(chan [2]int)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		before, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		thread <- unix.Gettid()
		for {
			select {
			case <-end:
				after, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
				slack <- [2]int{before, after}
				return
			default:
				sleep(10 * time.Millisecond)
			}
		}
	}()
	file := fmt.Sprintf("/proc/%d/timerslack_ns", <-thread)
	require.Eventually(t, func() bool {
		now, err := os.ReadFile(file)
		return err == nil && string(now) == "1\n"
	}, time.Minute, time.Millisecond)
	close(end)
	got := <-slack
	require.Positive(t, got[0])
	require.Equal(t, got[0], got[1])
}
