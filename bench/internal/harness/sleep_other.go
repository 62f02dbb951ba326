//go:build !linux

package harness

import "time"

// sleep waits for d, or longer.
func sleep(d time.Duration) { time.Sleep(d) }
