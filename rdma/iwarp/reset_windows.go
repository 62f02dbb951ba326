package iwarp

import (
	"errors"

	"golang.org/x/sys/windows"
)

// IsReset reports whether err says that the peer has reset the TCP connection. Windows may report
// that to a write as an abort.
func IsReset(err error) bool {
	return errors.Is(err, windows.WSAECONNRESET) || errors.Is(err, windows.WSAECONNABORTED)
}
