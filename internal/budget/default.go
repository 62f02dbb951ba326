package budget

import (
	"math"
	"strconv"
	"sync"

	"github.com/gosdp/gosdp/internal/cgroup"
)

const (
	part    = 16       // of the memory that there is, as of a kernel's for TCP
	least   = 16 << 20 // bytes: two connections in full swing
	most    = 4 << 30
	unknown = 1 << 30 // the memory of a machine that does not say
)

// Default returns the limit that follows from the machine: a sixteenth of its memory,
// or of what the control group may use if that is less, between 16 MB and 4 GB. It is
// found out once.
var Default = sync.OnceValue(func() int64 {
	return share(machineMemory(), cgroup.Own().Memory)
})

// share returns the budget for that much memory of the machine and of the group; 0:
// not known, or without a limit.
func share(machine, group int64) int64 {
	if machine <= 0 {
		machine = unknown
	}
	if group > 0 {
		machine = min(machine, group)
	}
	return min(max(machine/part, least), most)
}

// Parse reads a number of bytes, such as 512M: K, M and G are powers of 1024.
func Parse(text string) (bytes int64, ok bool) {
	shift := 0
	if n := len(text); n > 0 {
		switch text[n-1] {
		case 'k', 'K':
			shift = 10
		case 'm', 'M':
			shift = 20
		case 'g', 'G':
			shift = 30
		}
		if shift > 0 {
			text = text[:n-1]
		}
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n == 0 || n > math.MaxInt64>>shift {
		return 0, false
	}
	return int64(n) << shift, true
}
