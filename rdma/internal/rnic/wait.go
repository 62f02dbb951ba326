package rnic

import (
	"time"

	"github.com/gosdp/gosdp/internal/bubble"
)

// Past is a deadline that has passed: setting it ends a read or write that is parked.
var Past = time.Unix(1, 0)

// Until calls done until it returns true, with pauses that double from 20 µs to 1 ms. It
// returns false if done still returns false at the deadline. In a synctest bubble, whose clock may
// stand still, only the pauses count.
func Until(deadline time.Time, done func() bool) bool {
	left := time.Until(deadline)
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		if done() {
			return true
		}
		if left <= 0 {
			return false
		}
		bubble.Sleep(pause)
		left = min(left-pause, time.Until(deadline))
	}
}
