//go:build !linux

package policy

import "errors"

// HaveSHM says that this system can share memory between the ends of a connection.
const HaveSHM = false

func checkDirectory(string) error { return errors.ErrUnsupported }
