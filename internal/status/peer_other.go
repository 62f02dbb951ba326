//go:build !linux && !darwin

package status

import (
	"errors"
	"net"
)

func peer(*net.UnixConn) (uid, pid int, err error) { return 0, 0, errors.ErrUnsupported }
