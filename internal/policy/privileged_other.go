//go:build !linux

package policy

import "os"

// privileged reports whether this program has the rights of another user than its caller.
func privileged() bool {
	return os.Geteuid() != os.Getuid() || os.Getegid() != os.Getgid()
}
