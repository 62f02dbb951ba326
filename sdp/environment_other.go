//go:build !linux

package sdp

import "os"

// privileged reports whether this program has the rights of another user than its caller.
func privileged() bool {
	return os.Geteuid() != os.Getuid() || os.Getegid() != os.Getgid()
}

// mayReadPeers reports false, because no device reads a peer's memory on this system.
func mayReadPeers() bool { return false }

// filtered is not called there.
func filtered() bool { return true }
