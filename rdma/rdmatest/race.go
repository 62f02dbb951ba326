//go:build race

package rdmatest

// The race detector looks at every byte that moves, which takes a hundred times as long as moving it.
// It finds the same races in calls that move less.
const (
	raceEnabled = true

	most    = 2 << 20
	lighter = 8
)
