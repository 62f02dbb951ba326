//go:build !linux

package machine

import (
	"errors"
	"time"
)

// Busy is implemented on Linux only.
func Busy() (time.Duration, error) { return 0, errors.ErrUnsupported }
