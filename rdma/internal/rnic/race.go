//go:build race

package rnic

import (
	"runtime"
	"unsafe"
)

// Wire tells the race detector that what one end of a device does before Release happens
// before what the other end does after Acquire. The detector cannot see this when the ends
// communicate through the kernel, shared memory or hardware; package syscall does the same
// for read and write. A device has one for all its queue pairs.
type Wire struct{ _ int }

// Acquire is called after bytes have arrived.
func (w *Wire) Acquire() { runtime.RaceAcquire(unsafe.Pointer(w)) }

// Release is called before bytes are sent.
func (w *Wire) Release() { runtime.RaceReleaseMerge(unsafe.Pointer(w)) }
