//go:build linux && (amd64 || arm64)

package spin

// Pause executes n PAUSE instructions, which tell the processor that this thread is waiting for
// another one.
//
//go:noescape
func Pause(n uint32)
