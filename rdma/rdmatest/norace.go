//go:build !race

package rdmatest

const (
	raceEnabled = false

	most    = 8 << 20 // bytes of the largest transfer of the suite
	lighter = 1       // what the volume of a check with no need for it is divided by
)
