//go:build unix

package harness

import (
	"math"
	"syscall"
)

// manyFiles is enough for two descriptors for each of 8,000 connections, and for
// everything else.
const manyFiles = 32 << 10

// raiseFileLimit raises the limit of open descriptors if this process may. The
// runtime has already raised the soft limit to the hard one. If the limit stays
// too low, opening connections fails.
func raiseFileLimit() {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil || limit.Cur >= manyFiles {
		return
	}
	limit.Cur = manyFiles
	limit.Max = max(limit.Max, manyFiles)
	syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// fileLimit returns how many files this process may open.
func fileLimit() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxUint64
	}
	return uint64(limit.Cur)
}
