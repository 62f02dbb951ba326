//go:build linux && !amd64 && !arm64

package spin

import "sync/atomic"

var paused atomic.Uint32

// Pause takes a moment.
func Pause(n uint32) {
	for range n {
		paused.Load()
	}
}
