//go:build !windows

package iwarp

import (
	"errors"
	"syscall"
)

// IsReset reports whether err says that the peer has reset the TCP connection.
func IsReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
