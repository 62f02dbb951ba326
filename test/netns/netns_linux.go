package netns

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Enter puts the calling goroutine into a new network namespace, which has a loopback address. The test
// must end in this goroutine: its thread ends with it, and the namespace with the thread. Goroutines
// that it starts are in the namespace of all others. Without root Enter skips the test.
func Enter(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to make a network namespace")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(os.NewSyscallError("unshare", err))
	}
	if err := loopbackUp(); err != nil {
		t.Fatal(err)
	}
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}
