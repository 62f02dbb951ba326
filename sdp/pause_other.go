//go:build !linux

package sdp

import (
	"runtime"
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
)

// sleepReally waits by the machine's clock. In a synctest bubble, where time.Sleep ends only
// when every goroutine of the bubble is blocked, it lets the others run instead.
func sleepReally(d time.Duration) {
	if !bubble.Inside() {
		time.Sleep(d)
		return
	}
	runtime.Gosched()
}
