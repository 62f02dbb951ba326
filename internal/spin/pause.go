//go:build linux && (amd64 || arm64)

package spin

// Pause tells the processor n times, one after the other, that it is waiting for
// another one.
//
//go:noescape
func Pause(n uint32)
