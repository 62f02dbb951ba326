// Package bubble detects whether the calling goroutine is in a bubble of
// testing/synctest.
//
// All goroutines of a bubble must end before its test does, and objects made in a
// bubble must not be used outside it. So the library starts and uses nothing in a
// bubble that outlives a connection or serves several connections.
package bubble

import "time"

var start = time.Now().Unix()

// Inside reports whether the caller is in a bubble. It compares clocks: in a bubble
// the clock starts at the beginning of the year 2000, long before this process
// started. It fails if a test lets more years pass than have passed since then.
func Inside() bool { return time.Now().Unix() < start-age }

// age, in seconds, is longer than any step by which a machine's clock is set back.
const age = 365 * 24 * 60 * 60
