package budget

import (
	"sync"

	"github.com/gosdp/gosdp/internal/cgroup"
)

const (
	fraction      = 16      // of the memory, as in the kernel's limit for TCP
	minLimit      = 1 << 20 // bytes; a process that needs no more does not look for the default
	maxLimit      = 4 << 30
	unknownMemory = 1 << 30 // assumed if the system does not report its memory
)

// Default returns the default limit: a sixteenth of the machine's memory, or of the
// control group's limit if that is less. It is at least 1 MB and at most 4 GB. It is
// computed once, which takes 0.1 ms.
var Default = sync.OnceValue(func() int64 {
	return share(machineMemory(), cgroup.Own().Memory)
})

// share returns the limit for the given memory of the machine and limit of the group.
// Zero means unknown or unlimited.
func share(machine, group int64) int64 {
	if machine <= 0 {
		machine = unknownMemory
	}
	if group > 0 {
		machine = min(machine, group)
	}
	return min(max(machine/fraction, minLimit), maxLimit)
}
