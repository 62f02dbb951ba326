//go:build !linux

package harness

// systemMemory returns zeros: only Linux has these figures in a file.
func systemMemory() (Memory, error) { return Memory{}, nil }
