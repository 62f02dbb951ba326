package policy

import (
	"golang.org/x/sys/unix"
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
