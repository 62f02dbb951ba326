//go:build !linux

package term

import (
	"errors"
	"os"
)

func size(f *os.File) (columns, rows int, ok bool) {
	info, err := f.Stat()
	return 80, 24, err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Keys is not supported on this system.
func Keys(*os.File) (restore func(), err error) { return nil, errors.ErrUnsupported }
