//go:build !linux && !darwin

package budget

// machineMemory returns the machine's memory in bytes; 0: not known.
func machineMemory() int64 { return 0 }
