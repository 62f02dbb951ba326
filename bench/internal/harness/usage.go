package harness

import (
	"runtime"
	"runtime/metrics"
	"time"
)

// Usage is what a process has used since it started.
type Usage struct {
	CPU    time.Duration // user and system
	Allocs uint64        // objects allocated on the heap
}

// since returns the difference between u and an earlier Usage.
func (u Usage) since(then Usage) Usage {
	return Usage{CPU: u.CPU - then.CPU, Allocs: u.Allocs - then.Allocs}
}

// Memory is what a process holds at a given time. Values that the system does not
// report are zero.
type Memory struct {
	RSS    uint64 // resident bytes, including shared ones
	Shared uint64 // resident bytes of shared memory
	Stacks uint64 // bytes of goroutine stacks
	FDs    uint64 // open descriptors

	Goroutines uint64
}

// usage returns the usage of this process.
func usage() (Usage, error) {
	cpu, err := cpu()
	return Usage{CPU: cpu, Allocs: counter("/gc/heap/allocs:objects")}, err
}

// memory returns the memory of this process.
func memory() (Memory, error) {
	held, err := systemMemory()
	held.Goroutines = uint64(runtime.NumGoroutine())
	held.Stacks = counter("/memory/classes/heap/stacks:bytes")
	return held, err
}

// counter reads one of the runtime's metrics without stopping the world.
func counter(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// OwnCPU returns the processor time that this process has used, user and system.
func OwnCPU() (time.Duration, error) { return cpu() }
