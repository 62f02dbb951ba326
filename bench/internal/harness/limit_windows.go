package harness

import "math"

// raiseFileLimit does nothing: Windows has no limit to raise.
func raiseFileLimit() {}

// fileLimit returns how many files this process may open.
func fileLimit() uint64 { return math.MaxUint64 }
