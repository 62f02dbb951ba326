//go:build !linux

package machine

import (
	"errors"
	"time"
)

// Busy is known on Linux only.
func Busy() (time.Duration, error) { return 0, errors.ErrUnsupported }
