//go:build linux

package shm

import (
	"bytes"
	"crypto/rand"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Two ends have reach if each can read the other's memory with process_vm_readv, which RDMA
// Reads and Writes need. They try it only if the programs at both ends asked for zero copy: a
// sandbox may kill a process that makes this system call, and security tools report it as
// tracing.

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

const (
	// tryTime is how long reading a probe may take. It usually takes microseconds.
	tryTime = 250 * time.Millisecond
	// promptTime is the same while others wait.
	promptTime = time.Millisecond
)

// lookFirst is how often this goroutine yields to the one that reads before it takes a timer, which
// wakes a thread. Usually the other one needs one turn.
const lookFirst = 8

// try reports whether the probe can be read at its address in the process, or whether that was not
// known in time.
func (p *process) try(address uint64, want []byte, patience time.Duration) (there, late bool) {
	if int(leftBehind.Load()) == cap(tries) {
		return false, false
	}
	select {
	case tries <- struct{}{}:
	default:
		over := time.NewTimer(patience)
		defer over.Stop()
		select {
		case tries <- struct{}{}:
		case <-over.C:
			return false, true
		}
	}
	found := make(chan bool, 1)
	var parted atomic.Bool // the goroutine has ended, or was abandoned
	p.hold()
	go func() {
		defer func() {
			p.release()
			if !parted.CompareAndSwap(false, true) {
				leftBehind.Add(-1)
			}
			<-tries
		}()
		var got [probeLen]byte
		n, err := p.read(got[:], uintptr(address))
		found <- err == nil && n == probeLen && bytes.Equal(got[:], want)
	}()
	for range lookFirst {
		runtime.Gosched()
		select {
		case is := <-found:
			return is, false
		default:
		}
	}
	over := time.NewTimer(patience)
	defer over.Stop()
	select {
	case is := <-found:
		return is, false
	case <-over.C:
	}
	leftBehind.Add(1)
	if !parted.CompareAndSwap(false, true) { // it ended at the same moment
		leftBehind.Add(-1)
		return <-found, false
	}
	return false, true
}
