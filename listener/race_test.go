//go:build race

package listener

// slow is how much longer things take under the race detector.
const slow = 5
