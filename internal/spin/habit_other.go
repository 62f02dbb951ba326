//go:build !linux

package spin

// For calls there once. There is no giving the processor to another process here,
// which looking would keep it from.
func (h *Habit) For(there func() (over, worth bool)) { there() }
