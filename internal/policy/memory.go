package policy

import (
	"fmt"
	"sync"

	"github.com/gosdp/gosdp/internal/budget"
)

// leastMemory is the least budget that SDP_MEMORY may set. A smaller one is a missing unit.
const leastMemory = 64 << 10

// programMemory is what the program has set; 0: nothing.
var programMemory struct {
	sync.Mutex
	limit int64
}

// SetMemoryLimit sets the budget of the process in bytes, and returns the limit before. If limit is 0, that of
// SDP_MEMORY or the default applies again. If it is negative, nothing changes.
func SetMemoryLimit(limit int64) (previous int64) {
	setMemory() // Dial and Listen report a mistake in the variable
	previous = budget.Process.Limit()
	if limit >= 0 {
		programMemory.Lock()
		programMemory.limit = limit
		programMemory.Unlock()
		setMemory()
	}
	return previous
}

// setMemory sets the budget of the process to what the program has said, or else to what the
// environment says, or else to the default.
func setMemory() error {
	limit, err := bytesOf(memoryVariable)
	if text := Getenv(memoryVariable); err == nil && text != "" && limit < leastMemory {
		err = fmt.Errorf("%s=%s: must be at least %dK", memoryVariable, text, leastMemory>>10)
	}
	programMemory.Lock()
	defer programMemory.Unlock()
	if programMemory.limit > 0 {
		limit = programMemory.limit
	} else if err != nil {
		limit = 0 // the default
	}
	budget.Process.SetLimit(limit)
	return err
}
