// Package bubble knows whether the calling goroutine is in a bubble of
// testing/synctest.
//
// The goroutines of a bubble must all end before its test does, and what was made in
// one must not be touched from outside. So nothing that lives longer than a connection,
// and nothing that serves several of them, is started or used in a bubble.
package bubble

import "time"

var start = time.Now().Unix()

// Inside reports that the caller is in a bubble. The clock tells: in a bubble it begins
// on the first day of the year 2000, long before this process did. A test that lets more
// years pass than have since then goes unnoticed.
func Inside() bool { return time.Now().Unix() < start-age }

// age is longer than a machine's clock is ever set back, in seconds.
const age = 365 * 24 * 60 * 60
