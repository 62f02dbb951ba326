//go:build race

package parity

// raceFactor is how much more processor time the race detector may take.
const raceFactor = 5
