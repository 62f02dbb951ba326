package engine

import (
	"math"

	"golang.org/x/sys/unix"
)

// mostDescriptors returns how many descriptors this process may have. Tests replace it.
var mostDescriptors = func() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt
	}
	return int(min(limit.Cur, math.MaxInt))
}
