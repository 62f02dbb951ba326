package rdmatest

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// patience is how long a subtest may take. None takes a tenth of it unless a call hangs, even on a
// busy machine.
var patience = patienceFrom(os.Getenv(patienceVariable))

// patienceVariable sets patience, for faulty devices whose checks should fail soon.
const patienceVariable = "RDMATEST_PATIENCE"

func patienceFrom(text string) time.Duration {
	if d, err := time.ParseDuration(text); err == nil {
		return d
	}
	return 2 * time.Minute
}

// enough is how long a subtest waits for something that must happen, so that it can fail and the next
// one can run.
func enough() <-chan time.Time { return time.After(patience / 4) }

// guard ends the program if the subtest hangs, and fails the subtest if it leaves goroutines behind.
// In both cases it shows the stacks of all goroutines.
func guard(t *testing.T) {
	before := runtime.NumGoroutine()
	// A goroutine that hangs inside a device cannot be ended from outside, so the watchdog does
	// what go test does at its own time limit.
	watchdog := time.AfterFunc(patience, func() {
		panic(fmt.Sprintf("rdmatest: %s hangs\n\n%s", t.Name(), stacks()))
	})
	t.Cleanup(func() {
		defer watchdog.Stop()
		// A goroutine that has signalled its end is still counted for a moment.
		deadline := time.Now().Add(patience / 4)
		for runtime.NumGoroutine() > before {
			if time.Now().After(deadline) {
				t.Errorf("%d goroutines before, %d after\n\n%s", before, runtime.NumGoroutine(), stacks())
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
}

func stacks() []byte {
	b := make([]byte, 1<<20)
	return b[:runtime.Stack(b, true)]
}
