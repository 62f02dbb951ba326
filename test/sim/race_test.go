//go:build race

package sim

// A world has one goroutine, so what the race detector could find is in the first
// seeds; the others run without it.
const defaultSeeds = 50
