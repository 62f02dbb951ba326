package sdp

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gosdp/gosdp/internal/budget"
)

// TestMain lets the test binary be the peer process too.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		bePeer(role)
		return
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if code == 0 && !given() {
			fmt.Println("bytes are still promised that no connection has:", budget.Process.Used())
			code = 1
		}
		os.Exit(code)
	}))
}

// given waits until everything that connections had promised is given back. What tests
// have dropped the collector closes.
func given() bool {
	for range 3000 {
		if budget.Process.Used() == 0 {
			return true
		}
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	return false
}
