//go:build !linux

package bubble

import (
	"runtime"
	"time"
)

// Sleep waits by the machine's clock. In a synctest bubble, where time.Sleep ends only
// when every goroutine of the bubble is blocked, it lets the others run instead.
func Sleep(d time.Duration) {
	if !Inside() {
		time.Sleep(d)
		return
	}
	runtime.Gosched()
}
