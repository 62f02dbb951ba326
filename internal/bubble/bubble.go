// Package bubble detects whether the calling goroutine is in a bubble of
// testing/synctest.
//
// All goroutines of a bubble must end before its test does, and objects made in a
// bubble must not be used outside it. So the library starts and uses nothing in a
// bubble that outlives a connection or serves several connections.
package bubble

import "time"

var start = time.Now()

// Inside reports whether the caller is in a bubble. It compares clocks: in a bubble
// the clock starts at the beginning of the year 2000, long before this process
// started. It fails if a test lets more years pass than have passed since then.
// Outside, time.Since uses the monotonic clock, and it does not matter how the
// machine's clock is set.
func Inside() bool { return time.Since(start) < 0 }
