//go:build race

package parity

// raceFactor is how many times more processor time the race detector may need.
const raceFactor = 5
