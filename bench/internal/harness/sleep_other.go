//go:build !linux

package harness

import "time"

// sleep waits for at least d.
func sleep(d time.Duration) { time.Sleep(d) }
