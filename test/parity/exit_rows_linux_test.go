package parity

import "time"

// row is a row of the exit table: how the writer writes and the reader reads.
type row struct {
	name         string
	writes, size int
	pause        time.Duration // before one more Write of the same size
	readLate     time.Duration // between Accept and the first Read
	acceptLate   time.Duration // between the writer's end and Accept

	// iwarp says that every byte must arrive over iwarp. Over shm and TCP, it always must.
	iwarp bool
}

const (
	exitPause  = 5 * time.Second
	acceptLate = time.Second
	readLate   = 100 * time.Millisecond
)

var exitRows = []row{
	{name: "1 Write of 64 B", writes: 1, size: 64, iwarp: true},
	{name: "10 Writes of 64 B", writes: 10, size: 64, iwarp: true},
	{name: "100 Writes of 64 B", writes: 100, size: 64, iwarp: true},
	{name: "10,000 Writes of 64 B", writes: 10_000, size: 64},
	{name: "100 Writes of 64 B, 5 s later one more", writes: 100, size: 64, pause: exitPause, iwarp: true},
	{name: "1 Write of 1 MB, first Read 100 ms late", writes: 1, size: 1 << 20, readLate: readLate},
	{name: "100 Writes of 64 B, Accept 1 s after the writer's end", writes: 100, size: 64, acceptLate: acceptLate},
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

// promised reports whether every byte must arrive over the stack.
func (r *row) promised(stack string) bool { return r.iwarp || stack != "iwarp" }
