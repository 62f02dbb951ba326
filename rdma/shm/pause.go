//go:build linux && (amd64 || arm64)

package shm

// pause tells the processor n times, one after the other, that it is waiting for
// another one.
//
//go:noescape
func pause(n uint32)
