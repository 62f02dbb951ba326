//go:build linux && !amd64 && !arm64

package shm

import "sync/atomic"

var paused atomic.Uint32

// pause spends a moment.
func pause(n uint32) {
	for range n {
		paused.Load()
	}
}
