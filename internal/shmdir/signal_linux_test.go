package shmdir

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

// TestSignals: a signal does not make a claim look as if the dialler had taken it back. Some hundred of these
// looks are interrupted if a second processor is free to send signals, and none otherwise.
func TestSignals(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := unix.Gettid()
	var over atomic.Bool
	var sending sync.WaitGroup
	sending.Go(func() {
		for !over.Load() {
			unix.Tgkill(os.Getpid(), thread, unix.SIGURG)
		}
	})
	defer sending.Wait()
	defer over.Store(true)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	assert.NoError(t, err)
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	c := claim{fd: fds[0]}
	for range 200_000 {
		if !c.stands() {
			assert.Fail(t, "a signal has ended the claim")
			break
		}
	}
}
