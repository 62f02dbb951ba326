package sdp

import (
	"errors"
	"io/fs"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gosdp/gosdp/internal/sysfile"
)

const atSecure = 23 // AT_SECURE, <linux/auxvec.h>

// privileged reports whether the kernel started this program with rights that its caller
// lacks.
func privileged() bool {
	values, err := unix.Auxv()
	if err != nil {
		return unix.Geteuid() != unix.Getuid() || unix.Getegid() != unix.Getgid()
	}
	for _, v := range values {
		if v[0] == atSecure {
			return v[1] != 0
		}
	}
	return false
}

// mayReadPeers reports whether trying to read a peer's memory does no harm. A sandbox may kill a
// process for the system call, and Yama reports each attempt that it forbids in the kernel's log.
// A program that enters a sandbox later, while it has connections, must set a negative threshold.
var mayReadPeers = sync.OnceValue(func() bool {
	scope, err := sysfile.Read("/proc/sys/kernel/yama/ptrace_scope")
	if err == nil && strings.TrimSpace(string(scope)) != "0" || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	status, err := sysfile.Read("/proc/self/status")
	return err == nil && unfiltered(string(status))
})

// unfiltered reports whether the status of a process says that no filter restricts its system
// calls. Kernels without seccomp do not mention it.
func unfiltered(status string) bool {
	_, mode, found := strings.Cut(status, "\nSeccomp:")
	return !found || strings.HasPrefix(strings.TrimSpace(mode), "0")
}
