//go:build race

package faults

// raceEnabled: everything takes longer, and less of it is done.
const raceEnabled = true

// The race detector keeps memory of its own for all that a program has ever touched.
const slack = 512 << 20
