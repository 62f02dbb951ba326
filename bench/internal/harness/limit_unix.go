//go:build unix

package harness

import (
	"math"
	"syscall"
)

// manyFiles is what two descriptors for each of 9,000 connections need, and
// room for the rest.
const manyFiles = 32 << 10

// raiseFileLimit lets this process open many descriptors. The Go runtime has
// raised its limit as far as everyone may; whoever may raises it further. A
// limit that stays too low shows when connections are opened.
func raiseFileLimit() {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil || limit.Cur >= manyFiles {
		return
	}
	limit.Cur = manyFiles
	limit.Max = max(limit.Max, manyFiles)
	syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// fileLimit is how many files this process may open.
func fileLimit() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxUint64
	}
	return uint64(limit.Cur)
}
