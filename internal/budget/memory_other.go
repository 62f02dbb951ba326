//go:build !linux && !darwin

package budget

// machineMemory returns 0, because the machine's memory is not known.
func machineMemory() int64 { return 0 }
