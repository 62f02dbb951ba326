//go:build linux

package shm

import (
	"bytes"
	"crypto/rand"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Two ends have reach if each can read the other's memory with process_vm_readv, which RDMA
// Reads and Writes need. They try it only if the programs at both ends asked for zero copy: a
// sandbox may kill a process that makes this system call, and security tools report it as
// tracing.

// reachable reports whether this process may read a peer's memory: the kernel must name the
// peer's process, and its user must be this process's own. A process of another user may
// execute a set-user-ID program and keep its pid and its sockets, and a privileged process
// could read that program's memory too.
func reachable(pid, uid int) bool { return pid != 0 && uid == os.Geteuid() }

const probeLen = 16

// probe is a sequence of bytes in this process's memory that are hard to guess. The peer knows the
// bytes, gets their address, and checks whether it can read them there. The client's probe is made
// of the token.
type probe [probeLen]byte

// newProbe returns a probe with these contents. It must be on the heap: if newProbe were inlined,
// the probe could be on a stack, which may move.
//
//go:noinline
func newProbe(of probe) *probe { return &of }

// randomProbe returns a probe that nobody else knows.
func randomProbe() *probe {
	var of probe
	rand.Read(of[:])
	return newProbe(of)
}

// address returns the address of the probe.
func (p *probe) address() uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// Reading a page of the peer may block forever: the page may be served by userfaultfd, or be in
// a file of a file system that a process serves. Only SIGKILL ends the system call. So a
// separate goroutine reads the probe, to memory of its own, and is abandoned after tryTime.
// tries has an element for each of these goroutines, and leftBehind counts the abandoned ones.
// When all are abandoned, no further peer is in reach.
var (
	tries      = make(chan struct{}, 16)
	leftBehind atomic.Int32
)

// tryTime is how long reading a probe may take. It usually takes microseconds. It is a variable for
// tests.
var tryTime = 250 * time.Millisecond

// lookFirst is how often this goroutine yields to the one that reads before it takes a timer, which
// wakes a thread. Usually the other one needs one turn.
const lookFirst = 8

// try reports whether the probe can be read at its address in the process pid.
func try(pid int, address uint64, want []byte) bool {
	if pid == 0 || int(leftBehind.Load()) == cap(tries) {
		return false
	}
	select {
	case tries <- struct{}{}:
	default:
		late := time.NewTimer(tryTime)
		defer late.Stop()
		select {
		case tries <- struct{}{}:
		case <-late.C:
			return false
		}
	}
	found := make(chan bool, 1)
	var parted atomic.Bool // the goroutine has ended, or was abandoned
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
	for range lookFirst {
		runtime.Gosched()
		select {
		case is := <-found:
			return is
		default:
		}
	}
	late := time.NewTimer(tryTime)
	defer late.Stop()
	select {
	case is := <-found:
		return is
	case <-late.C:
	}
	leftBehind.Add(1)
	if !parted.CompareAndSwap(false, true) { // it ended at the same moment
		leftBehind.Add(-1)
		return <-found
	}
	return false
}
