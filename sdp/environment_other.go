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
