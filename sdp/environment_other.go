//go:build !linux

package sdp

import (
	"math"
	"os"
)

// privileged reports whether this program has the rights of another user than its caller.
func privileged() bool {
	return os.Geteuid() != os.Getuid() || os.Getegid() != os.Getgid()
}

// mostDescriptors returns how many descriptors this process may have, as far as is known.
func mostDescriptors() int { return math.MaxInt }

// mayReadPeers reports false, because no device reads a peer's memory on this system.
func mayReadPeers() bool { return false }

// filtered is not called there.
func filtered() bool { return true }
