//go:build race

package collect

// raceEnabled says that the race detector runs.
const raceEnabled = true
