//go:build linux && race

package stream

import "sync/atomic"

// raceSync orders every Write before every Read that returns after it, for the race detector, as package syscall does for
// system calls: the detector does not see what passes through the kernel or the ring.
var raceSync atomic.Uint64

func raceWrite() { raceSync.Add(1) }

func raceRead() { raceSync.Load() }
