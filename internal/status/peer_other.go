//go:build !linux && !darwin

package status

import (
	"errors"
	"net"
)

// Peer is not supported on this system.
func Peer(*net.UnixConn) (uid, pid int, err error) { return 0, 0, errors.ErrUnsupported }
