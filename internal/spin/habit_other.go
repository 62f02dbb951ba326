//go:build !linux

package spin

// For calls there once. It does not poll, because on this system it cannot yield the processor to
// another process.
func (h *Habit) For(there func() (over, worth bool)) { there() }
