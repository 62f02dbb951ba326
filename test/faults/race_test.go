//go:build race

package faults

// raceEnabled shortens tests, because everything takes longer.
const raceEnabled = true
