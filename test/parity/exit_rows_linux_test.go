package parity

import "time"

// row is a row of the exit table: how the writer writes and the reader reads.
type row struct {
	name         string
	writes, size int
	pause        time.Duration // before one more Write of the same size
	readLate     time.Duration // between Accept and the first Read
	acceptLate   time.Duration // between the writer's end and Accept

	// iwarp is the share of runs over iwarp in which every byte must arrive. Over shm and
	// TCP, every byte must arrive in all runs.
	iwarp float64
}

const (
	exitPause  = 5 * time.Second
	acceptLate = time.Second
	readLate   = 100 * time.Millisecond
)

var exitRows = []row{
	{name: "1 Write of 64 B", writes: 1, size: 64, iwarp: 1},
	{name: "10 Writes of 64 B", writes: 10, size: 64, iwarp: 1},
	{name: "100 Writes of 64 B", writes: 100, size: 64, iwarp: 1},
	{name: "10,000 Writes of 64 B", writes: 10_000, size: 64},
	{name: "100 Writes of 64 B, 5 s later one more", writes: 100, size: 64, pause: exitPause, iwarp: 1},
	{name: "1 Write of 1 MB, first Read 100 ms late", writes: 1, size: 1 << 20, readLate: readLate, iwarp: 0.9},
	{name: "100 Writes of 64 B, Accept 1 s after the writer's end", writes: 100, size: 64, acceptLate: acceptLate, iwarp: 1},
}

// total returns how many bytes the writer writes.
func (r *row) total() int {
	if r.pause > 0 {
		return (r.writes + 1) * r.size
	}
	return r.writes * r.size
}

// endings are the ways in which the writer ends, directly after its last Write.
var endings = []string{"os.Exit(0)", "return from main", "panic", "SIGKILL"}

// required returns in how many of the runs every byte must arrive.
func (r *row) required(stack string, runs int) int {
	if stack != "iwarp" {
		return runs
	}
	return int(r.iwarp * float64(runs))
}

// pooled reports whether a cell has too few runs for a share, so that the share is taken over
// all endings together.
func (r *row) pooled(stack string, runs int) bool {
	return stack == "iwarp" && r.iwarp < 1 && runs < 20
}
