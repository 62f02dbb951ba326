//go:build race

package rdmatest

// The race detector looks at every byte that moves, at a hundred times what the
// move costs. It finds what it is there for in as many calls that move less.
const (
	raceEnabled = true

	most    = 2 << 20
	lighter = 8
)
