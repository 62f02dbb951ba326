//go:build !linux

package lookout

// For reports what there says. There is no giving the processor to another process
// here, which looking would keep it from.
func (h *Habit) For(there func() bool) bool { return there() }
