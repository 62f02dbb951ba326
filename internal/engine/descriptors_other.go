//go:build !linux

package engine

import "math"

// mostDescriptors returns how many descriptors this process may have, as far as is known.
func mostDescriptors() int { return math.MaxInt }
