//go:build linux

package shm

import (
	"bytes"
	"crypto/rand"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reach is that each end can read the other's memory with process_vm_readv, as RDMA
// Reads and Writes need it. The ends try it only if the programs at both ends asked for
// zero copy: a sandbox may end a process that makes this system call, and tools that
// watch a host report it as tracing.

// reachable reports that a peer's memory may be read: the kernel names its process,
// which is of our own user. Another user's process may execute a program of a third
// one's while it keeps its pid and its sockets, and a process with privileges could read
// that one too.
func reachable(pid, uid int) bool { return pid != 0 && uid == os.Geteuid() }

const probeLen = 16

// probe is bytes in our memory that the peer is told, for it to find out whether it can
// read them there.
type probe [probeLen]byte

// newProbe returns a new one. It lies on the heap: inlined, it might lie on a stack,
// which moves while the peer looks for it.
//
//go:noinline
func newProbe() *probe {
	p := new(probe)
	rand.Read(p[:])
	return p
}

// address is where it lies.
func (p *probe) address() uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// A page of the peer's may be one that never comes: behind userfaultfd, or in a file
// of a file system that a process serves. Who reads it is in the kernel until the peer
// lets go, and no signal but the last gets him out. So a goroutine reads the probe, to
// memory of its own, and is left behind when its time is over. tries holds one for each
// of these goroutines: when all are left behind, which leftBehind counts, no more are,
// and nobody's memory is found to be in reach.
var (
	tries      = make(chan struct{}, 16)
	leftBehind atomic.Int32
)

// tryTime is for how long a probe is looked for. It takes microseconds.
const tryTime = 250 * time.Millisecond

// try reports that the probe is where the peer says that it is: then its memory
// can be read.
func try(pid int, address uint64, want []byte) bool {
	if pid == 0 || int(leftBehind.Load()) == cap(tries) {
		return false
	}
	late := time.NewTimer(tryTime)
	defer late.Stop()
	select {
	case tries <- struct{}{}:
	case <-late.C:
		return false
	}
	found := make(chan bool, 1)
	var parted atomic.Bool // it has come to its end, or been left behind
	go func() {
		defer func() {
			if !parted.CompareAndSwap(false, true) {
				leftBehind.Add(-1)
			}
			<-tries
		}()
		var got [probeLen]byte
		local := [1]unix.Iovec{{Base: &got[0]}}
		local[0].SetLen(probeLen)
		remote := [1]unix.RemoteIovec{{Base: uintptr(address), Len: probeLen}}
		n, err := unix.ProcessVMReadv(pid, local[:], remote[:], 0)
		found <- err == nil && n == probeLen && bytes.Equal(got[:], want)
	}()
	select {
	case is := <-found:
		return is
	case <-late.C:
	}
	leftBehind.Add(1)
	if !parted.CompareAndSwap(false, true) { // a machine that has stood still has both
		leftBehind.Add(-1)
		return <-found
	}
	return false
}
