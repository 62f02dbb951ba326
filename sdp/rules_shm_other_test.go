//go:build !linux

package sdp

// rulesOfSharedMemory are none where there is no shm.
func rulesOfSharedMemory() []string { return nil }
