// Package watchdog ends a fuzzer whose target hangs. Without it, go test ends the fuzzer at
// the end of its time, and the fuzzer passes.
package watchdog

import (
	"flag"
	"runtime/debug"
	"sync"
	"time"
)

const (
	fuzzing = 4 * time.Second // fits into the shortest time for which make fuzz runs a fuzzer
	testing = time.Minute     // for inputs that a test tries, on a busy machine with the race detector
)

var limit = sync.OnceValue(func() time.Duration {
	if f := flag.Lookup("test.fuzz"); f != nil && f.Value.String() != "" {
		return fuzzing
	}
	return testing
})

// Start begins to wait for a fuzzer's target, which calls stop when it returns. If it does not
// in time, the process prints its goroutines and ends. go test then keeps the input as one
// that fails.
func Start() (stop func() bool) {
	return time.AfterFunc(limit(), func() {
		debug.SetTraceback("all")
		panic("the fuzzer's target does not return")
	}).Stop
}
