//go:build linux

package shm

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The calls of linux/userfaultfd.h.
const (
	uffdAPI      = 0xc018aa3f
	uffdRegister = 0xc020aa00
	uffdMissing  = 1
)

// neverComes returns the address of a page that the kernel does not provide until release is called.
func neverComes(t *testing.T) (address uint64, release func()) {
	t.Helper()
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		t.Skipf("missing: userfaultfd for the kernel's own accesses (root, or vm.unprivileged_userfaultfd): %v", errno)
	}
	release = sync.OnceFunc(func() { unix.Close(int(fd)) })
	t.Cleanup(release)
	call := func(what uintptr, arg unsafe.Pointer) {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, what, uintptr(arg)); errno != 0 {
			t.Skipf("missing: userfaultfd: %v", errno)
		}
	}
	api := [3]uint64{0xAA}
	call(uffdAPI, unsafe.Pointer(&api))
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Munmap(page) })
	address = addressOf(page)
	area := [4]uint64{address, uint64(len(page)), uffdMissing}
	call(uffdRegister, unsafe.Pointer(&area))
	return address, release
}

// triesEnd waits until no goroutine looks for a probe any more.
func triesEnd(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return len(tries) == 0 }, 10*time.Second, time.Millisecond)
}

// TestProbeThatNeverComes: it delays nothing that looks for it, neither the two ends nor the place when it
// is closed.
func TestProbeThatNeverComes(t *testing.T) {
	defer triesEnd(t)
	address, release := neverComes(t)
	defer release()
	p := newPlace(t)
	c := meetsAt(t, p, func(token) uint64 { return address })
	assert.Zero(t, c.sight)
	gives(t, c.UnixConn, c.token.decision(canRead), "m")
	q, err := c.w.Take(t.Context())
	require.NoError(t, err)
	assert.True(t, q.Limits().BufferedOnly)
	q.Abort()
	require.NoError(t, p.Close())

	o := newOffer(t, "", stepConfig)
	g := guestOf(t, o)
	gives(t, g.UnixConn, g.token.meeting(&sight{flags: canRead, address: address}), "")
	q, err = o.Take(1)
	require.NoError(t, err)
	assert.Zero(t, g.decision(t))
	assert.True(t, q.Limits().BufferedOnly)
	q.Abort()
}

// TestManyProbesThatNeverCome: each occupies a thread in the kernel, and their number is limited.
func TestManyProbesThatNeverCome(t *testing.T) {
	address, release := neverComes(t)
	defer release()
	good := randomProbe()
	here := addressOf(good[:])
	var trying sync.WaitGroup
	for range 2 * cap(tries) {
		trying.Go(func() { assert.False(t, try(os.Getpid(), address, good[:])) })
	}
	trying.Wait()
	assert.Len(t, tries, cap(tries))
	begin := time.Now()
	for range 10 {
		assert.False(t, try(os.Getpid(), here, good[:]), "nobody is left to look for it")
	}
	assert.Less(t, time.Since(begin), 5*tryTime, "and nobody waits for one")
	release()
	triesEnd(t)
	assert.True(t, try(os.Getpid(), here, good[:]))
	triesEnd(t)
}

// TestPeerIsEnding: the memory of a process that is killed is freed before its sockets are closed. A fetch
// in between reports a reset.
func TestPeerIsEnding(t *testing.T) {
	a, b := pairOf(t, testConfig)
	defer a.Abort()
	defer b.Abort()
	child := exec.Command("true")
	require.NoError(t, child.Start())
	defer child.Wait()
	require.NoError(t, unix.Waitid(unix.P_PID, child.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)) // it stays a zombie
	a.peerPID = int32(child.Process.Pid)
	assert.ErrorIs(t, a.fetch(make([]byte, 8), 1<<20), syscall.ECONNRESET)
}
