//go:build !linux

package sdp

import "os"

// privileged reports that this program has another user's rights than its caller's.
func privileged() bool {
	return os.Geteuid() != os.Getuid() || os.Getegid() != os.Getgid()
}
