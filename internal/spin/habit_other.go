//go:build !linux

package spin

// For calls there once. On this system it could not yield the processor to another process.
func (h *Habit) For(there func() (over, worth bool)) { there() }
