//go:build race

package faults

// raceEnabled: everything takes longer, and less of it is done.
const raceEnabled = true
