//go:build linux && race

package shm

// raceEnabled: the race detector makes everything slower.
const raceEnabled = true
