package sdp

import (
	"errors"
	"io/fs"
	"math"
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

// mostDescriptors returns how many descriptors this process may have. Tests replace it.
var mostDescriptors = func() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt
	}
	return int(min(limit.Cur, math.MaxInt))
}

// mayReadPeers reports whether trying to read a peer's memory does no harm now.
func mayReadPeers() bool { return unrestricted() && !filtered() }

// unrestricted reports whether Yama does not restrict the reading of other processes' memory.
// It reports each attempt that it forbids in the kernel's log.
var unrestricted = sync.OnceValue(func() bool {
	scope, err := sysfile.Read("/proc/sys/kernel/yama/ptrace_scope")
	return err == nil && strings.TrimSpace(string(scope)) == "0" || errors.Is(err, fs.ErrNotExist)
})

// filtered reports whether a filter restricts the system calls of this process, which may then be
// killed for reading a peer's memory. A program may install the filter at any time, so this is
// asked again before each read that the program has not asked for. The runtime of Go itself calls
// prctl, so no filter for a Go program kills it for that.
func filtered() bool {
	mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	return mode > 0 || err != nil && err != unix.EINVAL // EINVAL: a kernel without filters
}
