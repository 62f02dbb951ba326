package rnic

import "time"

// Past is a deadline that has passed: setting it ends a read or write that is parked.
var Past = time.Unix(1, 0)

// Until calls done until it returns true, with pauses that double from 20 µs to 1 ms. It
// returns false if done still returns false at the deadline.
func Until(deadline time.Time, done func() bool) bool {
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		if done() {
			return true
		}
		if !time.Now().Before(deadline) {
			return false
		}
		time.Sleep(pause)
	}
}
